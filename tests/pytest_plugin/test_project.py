"""The project in examples/project, as its user runs it: a process of its own, real kernels, both import modes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pytest_plugin.conftest import PLUGIN

ROOT = Path(__file__).resolve().parents[2]
PLAIN = """
import triton
import triton.language as tl


@triton.jit
def kernel(x):
    tl.store(x, 1.0)


def test_triton_compiles_in_this_process_whatever_is_judged_beside_it():
    assert type(kernel).__name__ == "JITFunction"
"""
SOME = "cases-0-3 or here or whatever"
HERE = """
import pytest
from flashverify import Contract, Supports, subject


@subject(supports=Supports(dtypes=("fp32",), backward=False), contract=Contract(lse_base=None))
def in_this_file(p):
    group = p.q.shape[1] // p.k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (p.k, p.v))
    return (p.q @ k.mT * p.scale).softmax(-1) @ v


@pytest.mark.flashverify(in_this_file, cases=["fv1 seq_q=5 seq_k=9 dtype=fp32 backward=no"], checks=["accuracy", "padding"])
def test_here():
    pass
"""


@pytest.fixture
def example(tmp_path):
    """A copy of the example with two more test files, and a function that runs pytest in it."""
    shutil.copytree(ROOT / "examples/project", tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    (tmp_path / "project/tests/test_plain.py").write_text(PLAIN)
    (tmp_path / "project/tests/test_here.py").write_text(HERE)

    def run(*arguments):
        path = os.pathsep.join(str(ROOT / name) for name in ("", "kernels", "oracles"))
        environment = os.environ | {"PYTHONPATH": path, "FLASHVERIFY_DEVICE": "cpu", "COLUMNS": "100"}
        environment.pop("TRITON_INTERPRET", None)
        command = [sys.executable, "-m", "pytest", *PLUGIN, "-p", "no:cacheprovider", *arguments]
        return subprocess.run(command, cwd=tmp_path / "project", env=environment, capture_output=True, text=True)

    return run


@pytest.mark.slow
def test_right_kernels_pass_and_a_wrong_one_fails_beside_tests_that_know_nothing_of_it(example):
    done = example("--import-mode=importlib", "--flashverify-cases", "4", "--flashverify-no-explain", "-ra", "-k", SOME)

    assert re.search(r"1 failed, \d+ passed", done.stdout), done.stdout + done.stderr
    assert "FAILED tests/test_attention.py::test_wrong[cases-0-3]" in done.stdout
    assert re.search(r"flashverify replay 'fv1 .*' --subject kernels.subjects:wrong --check accuracy", done.stdout)
    assert "pytest_plugin" not in done.stdout
    assert re.search(r"test_here\S*:in_this_file: 1 case judged", done.stdout)
