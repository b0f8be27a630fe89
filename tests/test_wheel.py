"""The wheel: what it installs at the top level, and that the data files travel."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_wheel_holds_three_packages_and_nothing_else(tmp_path):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")

    names = zipfile.ZipFile(wheel).namelist()

    packages = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert packages == {"flashverify", "flashverify_kernels", "flashverify_oracles"}
    assert "flashverify/py.typed" in names
    assert "flashverify/report/templates/report.html.j2" in names
    assert "flashverify/case/space/benchmark_cases.txt" in names
