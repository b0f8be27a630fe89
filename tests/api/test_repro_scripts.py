"""Scripts of stored findings: those written today and those already stored."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flashverify.campaign.store.reproduction import repro_script
from flashverify.judge.record import FindingRecord
from flashverify.judge.verdict import Key, Status, Verdict

HERE = Path(__file__).parent
CASE = "fv1 seq_q=3 seq_k=4 dtype=fp32 backward=no"
STORED = (HERE / "stored_repro.txt").read_bytes()


def script(check: str = "accuracy", evidence: str = "cpu", **changes) -> bytes:
    verdict = Verdict(check=check, status=Status.FAIL, output="o", error="bound", message="o is wrong")
    key = Key("wrong", check, "bound", "o", "fp32")
    given = {"subject_spec": "wrong_kernel:WRONG", "case": CASE, "first": CASE} | changes
    return repro_script(FindingRecord(key=key, verdict=verdict, evidence=evidence, **given))


def run(source: bytes, folder: Path) -> subprocess.CompletedProcess:
    (folder / "repro.py").write_bytes(source)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE), *(path for path in sys.path if path)])
    return subprocess.run([sys.executable, "repro.py"], capture_output=True, text=True, cwd=folder, env=environment)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_script_stored_before_the_public_names_still_reproduces(tmp_path):
    assert b"from flashverify.campaign.toolkit import bundled" in STORED

    old, new = run(STORED, tmp_path), run(script(), tmp_path)

    assert (old.returncode, old.stderr) == (1, "")
    assert old.stdout.startswith("fail accuracy o bound o[0, 0, ")
    assert (new.returncode, new.stdout, new.stderr) == (old.returncode, old.stdout, old.stderr)


@pytest.mark.parametrize("check", ["crash", "exception", "accuracy"])
@pytest.mark.parametrize("evidence", ["interpreter (h100+2ulp)", "NVIDIA H100 (sm_90)"])
def test_a_script_imports_public_names_alone(check, evidence):
    tree = ast.parse(script(check, evidence))

    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert names == {"contextlib", "flashverify", "os", "sys"}


@pytest.mark.slow
@pytest.mark.thorough
def test_interpreted_kernels_are_judged_under_the_numerics_of_the_finding(tmp_path):
    done = run(script(evidence="interpreter (h100)", subject_spec="bundled"), tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert "pass accuracy" in done.stdout
