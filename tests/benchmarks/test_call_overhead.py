"""What planned calls cost and hand to the driver, by Triton's own launchers over a library that launches nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the library is built by a C compiler"),
]


def script(name, *options):
    surroundings = {n: x for n, x in os.environ.items() if n != "TRITON_INTERPRET"}
    command = [sys.executable, str(ROOT / "benchmarks" / name), *options]
    return subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)


def test_planned_launches_hand_the_driver_what_ordinary_ones_do():
    found = script("call_arguments.py")

    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.count("yes ") == 7


def test_the_parts_of_a_call_are_timed():
    found = script("call_overhead.py", "--rounds", "1")

    assert found.returncode == 0, found.stderr
    lines = dict(line.rsplit(None, 1) for line in found.stdout.splitlines())
    assert {"forward", "backward, .backward()", "backward: launches", "forward: the rest"} <= set(lines)
