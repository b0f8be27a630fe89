"""The processor time of a command, by kind of process."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "processor_time.py"


def test_time_of_a_child_is_told_apart_from_that_of_the_command(tmp_path: Path) -> None:
    busy = "import time; end = time.time() + 2.5\nwhile time.time() < end: pass"
    parent = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {busy!r}]).returncode + 3)"
    file = tmp_path / "rows.json"
    command = [sys.executable, str(SCRIPT), "--every", "1", "--json", str(file), "--", sys.executable, "-c", parent]
    assert subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode == 3
    rows = json.loads(file.read_text())
    assert rows[0]["other"]["processes"] == 1
    assert rows[0]["other"]["user"] > rows[0]["supervises"]["user"]
