"""A segment is believed by the code that wrote it alone."""

import shutil
import subprocess
import sys

from flashverify.campaign.store import segments

PACKAGE = segments._PACKAGE


def test_every_changed_module_is_another_version(tmp_path, monkeypatch):
    for name in ("case", "judge", "report", "campaign/store"):
        shutil.copytree(PACKAGE / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("outputs.py", "formats.py"):
        shutil.copy(PACKAGE / name, tmp_path / name)
    monkeypatch.setattr(segments, "_PACKAGE", tmp_path)
    version = segments.reader_version.__wrapped__
    seen = {version()}
    for name in ("outputs.py", "case/text.py", "judge/verdict.py", "report/group.py", "campaign/store/account.py"):
        with (tmp_path / name).open("a") as file:
            file.write("# changed\n")
        seen.add(version())

    assert len(seen) == 6


def test_what_reads_a_piece_is_part_of_the_version():
    code = "import flashverify.report.segment_process, sys; print(*(m for m in sys.modules if m.startswith('flashverify')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    paths = {name.replace(".", "/").removeprefix("flashverify").lstrip("/") for name in found}
    known = tuple(name.removesuffix(".py") for name in segments._READ_FROM)
    others = {path for path in paths if not any(path == name or path.startswith(f"{name}/") for name in known)}

    assert "report/aggregate" in paths
    assert others == {"", "campaign", "errors"}, "which say nothing about results"
