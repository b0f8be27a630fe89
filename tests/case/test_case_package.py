import subprocess
import sys

import flashverify.case


def test_the_package_names_its_members_and_they_are_sorted():
    names = flashverify.case.__all__

    assert all(hasattr(flashverify.case, name) for name in names)
    assert sorted(names, key=lambda n: (not n.isupper(), not n[0].isupper(), n)) == names


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, flashverify.case; print([m for m in ('torch', 'numpy', 'hypothesis') if m in sys.modules])"

    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
