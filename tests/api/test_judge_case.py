"""`judge_case`, `count_masks`, `cases` and `standard_cases`: one case from Python, with the verdicts of the command line."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
import torch

from flashverify import (
    CaseTextError,
    NoVerdictError,
    SubjectLoadError,
    Supports,
    UnsupportedCaseError,
    UsageError,
    cases,
    corrected_interpreter,
    count_masks,
    judge_case,
    parse_case,
    standard_cases,
    subject,
)
from flashverify.checks import engine
from flashverify.judge.verdict import CaseResult
from flashverify.subjects import has_gpu

ROOT = Path(__file__).resolve().parents[2]
TEXT = "fv1 seq_q=3 seq_k=5 causal=bottom-right dtype=bf16 klen=4 seed=3"
interpreted = pytest.mark.skipif(has_gpu(), reason="kernels are compiled in this process")


@subject(supports=Supports(masks=("causal",), dtypes=("fp32",), scales=("positive",)), device="cpu")
def right(p):
    s = p.q.double() @ p.k.double().mT.repeat_interleave(p.q.shape[1] // p.k.shape[1], 1) * p.scale
    if p.causal is not None:
        shift = p.k.shape[2] - p.q.shape[2] if p.causal == "bottom-right" else 0
        s = s.masked_fill(~torch.ones(s.shape[2:], dtype=torch.bool).tril(shift), float("-inf"))
    lse = s.logsumexp(-1)
    empty = torch.isinf(lse)
    weights = torch.exp(s - lse.masked_fill(empty, 0.0).unsqueeze(-1))
    o = weights @ p.v.double().repeat_interleave(p.q.shape[1] // p.k.shape[1], 1)
    return o.to(p.q.dtype), lse.float()


@subject(name="leaky", supports=right.supports, device="cpu")
def leaky(p):
    """One key too many."""
    s = p.q.double() @ p.k.double().mT.repeat_interleave(p.q.shape[1] // p.k.shape[1], 1) * p.scale
    if p.causal is not None:
        shift = p.k.shape[2] - p.q.shape[2] if p.causal == "bottom-right" else 0
        s = s.masked_fill(~torch.ones(s.shape[2:], dtype=torch.bool).tril(shift + 1), float("-inf"))
    lse = s.logsumexp(-1)
    return (torch.softmax(s, -1) @ p.v.double().repeat_interleave(p.q.shape[1] // p.k.shape[1], 1)).to(
        p.q.dtype
    ), lse.float()


CASE = "fv1 seq_q=9 seq_k=20 causal=bottom-right dtype=fp32"


def said(result: CaseResult) -> list:
    return [(v.check, v.status, v.output, v.error, v.mode, v.ratio, v.index) for v in result.verdicts]


def replayed(text: str) -> CaseResult:
    command = (sys.executable, "-m", "flashverify", "replay", text, "--subject", "bundled", "--device", "cpu", "--json")
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    fields = json.loads(done.stdout)
    return CaseResult.from_json(json.dumps({n: fields[n] for n in CaseResult.__struct_fields__ if n in fields}))


@pytest.mark.slow
@pytest.mark.thorough
@interpreted
def test_the_verdicts_are_those_of_the_command_line():
    result, replay = judge_case("bundled", TEXT), replayed(TEXT)

    assert said(result) == said(replay)
    assert (result.stats, result.evidence, result.case) == (replay.stats, replay.evidence, replay.case)
    alone = said(judge_case("bundled", TEXT, checks=("accuracy",)))
    assert alone == [verdict for verdict in said(replay) if verdict[0] == "accuracy"]


@interpreted
def test_an_open_interpreter_is_used():
    with corrected_interpreter(numerics="h100"):
        result = judge_case("bundled", TEXT, checks=("accuracy",))

    assert result.evidence == "interpreter (h100)"
    assert not result.failures


def test_a_subject_of_torch_is_judged_with_the_checks_that_are_named():
    result = judge_case(right, parse_case(CASE), checks=("accuracy", "counting"))

    assert {v.check for v in result.verdicts} == {"accuracy", "counting"}
    assert not result.failures
    found = judge_case(leaky, CASE, checks=("accuracy",))
    assert found.failures[0].output == "o"
    assert {v.check for v in judge_case(leaky, CASE, checks=("exception",)).failures} == {"accuracy"}


def test_masks_are_counted():
    assert count_masks(right, CASE).differences == ()
    found = count_masks(leaky, CASE).differences
    assert ("o", "leaked", 8) in {(d.output, d.error, d.count) for d in found}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((right, "fv1 seq=3"), CaseTextError, "unknown word 'seq=3'"),
        ((right, 7), UsageError, "case=7 is not accepted"),
        ((print, CASE), UsageError, "subject=<built-in function print> is not accepted"),
        (("nobody", CASE), SubjectLoadError, "'nobody' is not known"),
    ],
)
def test_what_is_no_case_and_no_subject_is_refused(arguments, error, message):
    for function in (judge_case, count_masks):
        with pytest.raises(error, match=message):
            function(*arguments)


@pytest.mark.parametrize(
    ("checks", "message"),
    [(("speed",), "checks: 'speed' is not accepted"), ("accuracy", "a sequence of names"), ((), "a sequence of names")],
)
def test_unknown_checks_are_refused(checks, message):
    with pytest.raises(UsageError, match=message):
        judge_case(right, CASE, checks=checks)


def test_a_case_that_the_subject_refuses_is_no_pass():
    other = CASE.replace("fp32", "fp16")

    assert (
        judge_case(right, other).unsupported == "dtype fp16 is not among fp32" or judge_case(right, other).unsupported
    )
    with pytest.raises(UnsupportedCaseError, match="is not accepted by right"):
        count_masks(right, other)


def test_cases_are_drawn_and_listed_inside_what_a_subject_supports():
    @hypothesis.settings(max_examples=20, database=None, deadline=None)
    @hypothesis.given(cases(right))
    def holds(case):
        assert right.supports.refusal(case) is None

    holds()
    listed = standard_cases(right.supports)
    assert listed == standard_cases(right)
    assert len(set(listed)) == len(listed) > 50
    assert all(right.supports.refusal(case) is None for case in listed)
    for function in (cases, standard_cases):
        with pytest.raises(UsageError, match="device='tpu'"):
            function(right, device="tpu")
        with pytest.raises(UsageError, match="subject=3"):
            function(3)


COMPILED = """
import pytest, sys, torch
import flashverify

with pytest.raises(flashverify.UsageError, match="without an NVIDIA GPU; to interpret its kernels set TRITON_INTERPRET=1"):
    flashverify.judge_case("bundled", "fv1 seq_q=3 seq_k=3")
from bf16_kernel import attention

@flashverify.subject(supports=flashverify.Supports(dtypes=("bf16",), backward=False), device="cpu")
def compiled(p):
    return attention(p.q, p.k, p.v)

for function in (flashverify.judge_case, flashverify.count_masks):
    with pytest.raises(flashverify.UsageError, match="launches Triton kernels on the CPU, but this process compiles them"):
        function(compiled, "fv1 seq_q=16 seq_k=16 dtype=bf16 backward=no")
"""
COMPILER = """
assert not flashverify.judge_case("torch-cpu", "fv1 seq_q=3 seq_k=3 dtype=fp32").failures
assert "torch._dynamo" not in sys.modules
"""


@pytest.mark.slow
@pytest.mark.thorough
@interpreted
def test_a_process_that_compiles_is_told_so_instead_of_failing_the_kernel_and_loads_no_compiler_of_torch():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *(path for path in sys.path if path)])
    done = subprocess.run([sys.executable, "-c", COMPILED + COMPILER], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_an_exception_of_the_harness_is_raised_and_never_a_silent_pass(monkeypatch):
    def broken(_base, _names):
        raise KeyError("dq")

    memory = next(spec for spec in engine.CHECK_SPECS if spec.name == "memory")
    monkeypatch.setattr(engine, "CHECK_SPECS", (dataclasses.replace(memory, run=broken),))
    with pytest.raises(NoVerdictError, match="the harness failed in the check memory: KeyError: 'dq'"):
        judge_case(right, "fv1 seq_q=3 seq_k=3 dtype=fp32", checks=("memory",))
