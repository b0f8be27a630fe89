"""The command: a subject that dies or hangs loses nothing, and bad input gets one clear error."""

import json

import pytest
from click.testing import CliRunner

from flashverify.cli import main
from flashverify.probing.answers import Loaded, Lost, Seen
from flashverify.probing.asking import Process
from flashverify.probing.questions import Trial

DEADLY = """
import os, time
from flashverify import subject
import torch

@subject(device="cpu")
def deadly(p):
    if p.q.shape[2] == 33:
        os._exit(7)
    if p.q.shape[2] == 65:
        time.sleep(60)
    s = p.q.float() @ p.k.float().mT * p.scale
    return (s.softmax(-1) @ p.v.float()).to(p.q.dtype), s.logsumexp(-1)
"""
CASE = "fv1 seq_q={} seq_k=64 dim_qk=16 dim_v=16 backward=no"


@pytest.fixture
def deadly(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(DEADLY, encoding="utf-8")
    return f"{path}:deadly"


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "why"), [(33, "exit-7"), pytest.param(65, "did not end", marks=pytest.mark.thorough)])
def test_a_case_that_kills_or_does_not_end_is_an_answer_and_the_next_one_is_asked(deadly, rows, why):
    with Process(deadly, "cpu", 5.0) as process:
        assert isinstance(process.start(), Loaded)
        lost = process.ask(Trial(case=CASE.format(rows)))
        right = process.ask(Trial(case=CASE.format(64)))

    assert isinstance(lost, Lost)
    assert why in lost.why
    assert isinstance(right, Seen)
    assert right.right
    assert process.lost == 1


@pytest.mark.slow
@pytest.mark.thorough
def test_the_command_prints_json_with_its_exit_code(deadly):
    result = CliRunner().invoke(main, ["probe", deadly, "--device", "cpu", "--seconds", "3", "--json"])
    found = json.loads(result.output)

    assert result.exit_code == found["exit_code"]
    assert found["spec"] == deadly
    assert "@subject(" in found["code"]
    assert found["trials"] >= 1


@pytest.mark.slow
def test_a_subject_that_runs_nothing_is_exit_code_3(tmp_path):
    path = tmp_path / "none.py"
    path.write_text(
        "from flashverify import subject\n@subject(device='cpu')\ndef none(p):\n    raise ValueError('never')\n",
        encoding="utf-8",
    )
    result = CliRunner().invoke(main, ["probe", f"{path}:none", "--device", "cpu", "--seconds", "2"])

    assert result.exit_code == 3
    assert "ValueError: never" in result.output


REFUSED = {
    "no-such-subject": (["no-such-subject"], "no-such-subject"),
    "device": (["bundled", "--device", "tpu"], "device='tpu' is not accepted: one of auto, cpu, cuda"),
    "seconds": (["bundled", "--seconds", "0"], "--seconds"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_exit_code_2(name):
    arguments, words = REFUSED[name]
    result = CliRunner().invoke(main, ["probe", *arguments])

    assert result.exit_code == 2
    assert words in result.output
