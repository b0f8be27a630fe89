"""The check `sanitizer`: planted misuses of memory are found and named, correct kernels are never reported."""

import re
from pathlib import Path

import pytest
import torch

import flashverify_kernels
from flashverify import parse_case
from flashverify.case.space.matrix import standard_matrix
from flashverify.checks import Plan, judge_case
from flashverify.checks.registry import check_spec
from flashverify.checks.sanitizer import FILLS
from flashverify.interpreter import FILLS as ALL_FILLS
from flashverify.interpreter import Sanitizer, faithful, watch
from flashverify.interpreter.hooks import interpreting
from flashverify.judge.verdict import Status
from flashverify.mutants import Mutant, build_mutant
from flashverify.mutants.bank.memory import MEMORY_BANK
from flashverify.subjects import load_subject
from tests.checks.naive import make
from tests.fast_tier import fast_one_in

BLOCKS = "launch=block_m:16,block_n:16"
CASES = [
    parse_case(f"fv1 {text}")
    for text in (
        f"batch=2 heads_q=2 heads_kv=1 seq_q=37 seq_k=53 dim_qk=24 dim_v=24 dtype=fp16 gap=8 seed=5 {BLOCKS}",
        f"batch=2 heads_q=3 heads_kv=3 seq_q=70 seq_k=21 dim_qk=16 dim_v=16 dtype=fp32 klen=21,7 seed=3 {BLOCKS}",
    )
]
MEMORY = Plan(checks=("memory", "sanitizer"))
GUARDED = Mutant(
    name="lse_without_other",
    file="device/dq.py",
    before='mask=i < q_end, other=float("inf"))',
    after="mask=i < sq)",
    outputs=(),
    modelled_on="padded rows are computed from undefined values and never stored",
)


@pytest.fixture(autouse=True)
def _sanitized():
    if not interpreting():
        pytest.skip("kernels are compiled in this process")
    with faithful(Sanitizer):
        yield


def mutant(planted, folder):
    return load_subject(build_mutant(planted, folder))


def failures(subject, cases=CASES, plan=MEMORY):
    return [v for case in cases for v in judge_case(subject, case, plan).failures]


ERRORS = {
    "load_without_other": "undefined-lane",
    "last_tile_moved_back": "double-write",
    "delta_of_another_program": "race",
    "delta_of_the_last_row_missing": "uninitialised",
    "q_written_back": "input-store",
}
"""By defect: its class of error. The others are thorough; `out-of-bounds` is that of the report below."""
MISUSES = [m for m in MEMORY_BANK if m.name != "offset_in_32_bits"]


@pytest.mark.parametrize(
    "planted",
    [
        *fast_one_in(3, (m for m in MISUSES if m.name in ERRORS), ids=lambda m: m.name),
        *(pytest.param(m, id=m.name, marks=pytest.mark.thorough) for m in MISUSES if m.name not in ERRORS),
    ],
)
def test_planted_misuses_are_found_in_the_tensor_that_they_concern(planted, tmp_path):
    found = failures(mutant(planted, tmp_path))

    assert {v.check for v in found} <= {"memory", "sanitizer", "exception"}
    assert {v.output for v in found} & set(planted.outputs)
    if planted.name in ERRORS:
        assert ERRORS[planted.name] in {v.error for v in found if v.check == "sanitizer"}


def test_every_class_of_error_has_a_defect_in_the_bank():
    assert ERRORS.keys() <= {m.name for m in MISUSES}


def test_offsets_that_wrap_at_32_bits_are_found_in_a_buffer_of_which_little_is_touched(tmp_path):
    planted = next(m for m in MEMORY_BANK if m.name == "offset_in_32_bits")
    broken = mutant(planted, tmp_path)._kernels
    far = 2**31 + 64
    memory = torch.empty(far + 16 * 16, dtype=torch.float16)  # pages that are not touched cost nothing
    q = memory.as_strided((1, 2, 16, 16), (0, far, 16, 1)).fill_(1.0)

    with watch() as seen:
        broken.forward(q, q, q)

    (report, *_) = seen.reports.values()
    assert (report.kind, report.argument, report.access) == ("out-of-bounds", "q_view", "load")
    with watch() as seen:
        load_subject("bundled")._kernels.forward(q, q, q)
    assert not seen.reports


def test_a_report_names_line_tensor_program_and_index(tmp_path):
    planted = MEMORY_BANK[0]
    (verdict,) = failures(mutant(planted, tmp_path), CASES[:1])

    assert (verdict.check, verdict.error, verdict.output) == ("sanitizer", "out-of-bounds", "k_view")
    assert "address.py:" in verdict.message
    assert "from forward.py:" in verdict.message
    assert "k_view[" in verdict.message
    assert "in program (" in verdict.message
    assert verdict.message.endswith("lanes)")


@pytest.mark.slow
def test_undefined_lanes_that_reach_no_output_are_silent(tmp_path):
    assert failures(mutant(GUARDED, tmp_path)) == []


@pytest.mark.slow
def test_correct_kernels_are_not_reported():
    bundled = load_subject("bundled")
    cases = standard_matrix(bundled.supports, device="cpu")[::12]  # the whole matrix belongs to the benchmark

    assert failures(bundled, cases) == []


@pytest.mark.slow
def test_the_check_needs_interpreted_kernels():
    case = parse_case("fv1 seq_q=5 seq_k=9 dtype=fp32")
    plan = Plan(checks=("accuracy", "sanitizer"))

    assert "sanitizer" in Plan.run().checks
    assert {v.check for v in judge_case(make(), case, plan).verdicts} == {"accuracy"}
    assert {v.check for v in judge_case(load_subject("torch-cpu"), case, plan).verdicts} == {"accuracy"}
    judged = judge_case(load_subject("bundled"), parse_case("fv1 seq_q=5 seq_k=9 dim_qk=8 dim_v=8 dtype=fp32"), plan)
    assert {v.check: v.status for v in judged.verdicts}["sanitizer"] is Status.PASS


@pytest.mark.slow
def test_fuzzing_takes_at_most_four_passes_and_those_of_a_question_about_state(tmp_path):
    subject = mutant(GUARDED, tmp_path)
    passes, forward = [], type(subject).forward
    type(subject).forward = lambda self, problem: passes.append(1) or forward(self, problem)
    counts = set()
    try:
        for seed in range(6):
            del passes[:]
            text = f"fv1 seq_q=21 seq_k=17 dim_qk=16 dim_v=16 dtype=fp32 batch=2 klen=9,17 seed={seed} {BLOCKS}"
            case = parse_case(text)
            plan = Plan.fuzz(case)
            assert judge_case(subject, case, plan).failures == ()
            costs = {question.name: question.cost(case) for question in check_spec("reuse").questions}
            counts.add(len(passes) - sum(costs[name] for name in plan.asked("reuse")))
    finally:
        type(subject).forward = forward
    assert max(counts) == 4


def test_a_non_finite_output_is_traced_to_the_line_that_made_it(tmp_path):
    planted = Mutant(
        name="divides_by_zero",
        file="device/softmax.py",
        before="divisor = tl.where(l_i == 0.0, 1.0, l_i)",
        after="divisor = l_i * 0.0",
        outputs=("o",),
        modelled_on="rows divided by an empty sum",
    )
    case = parse_case(f"fv1 batch=2 seq_q=5 seq_k=9 dim_qk=16 dim_v=16 dtype=fp32 {BLOCKS}")
    found = failures(mutant(planted, tmp_path), [case], Plan(checks=("accuracy", "nonfinite", "sanitizer")))

    (verdict, *_) = [v for v in found if v.check == "nonfinite" and v.output == "o"]
    assert "overflow at forward.py:" in verdict.message or "overflow at softmax.py:" in verdict.message
    assert "forward_kernel: " in verdict.message


def test_a_case_of_the_determinism_of_program_order(tmp_path):
    planted = next(m for m in MEMORY_BANK if m.name == "last_tile_moved_back")
    order = Plan(checks=("determinism",), questions={"determinism": ("program-order",)})
    source = (Path(flashverify_kernels.__file__).parent / planted.file).read_text(encoding="utf-8")
    (prologue,) = re.findall(rf"{re.escape(planted.before)}.*?\n    q = load_tile[^\n]*", source, re.DOTALL)
    differing = Mutant(
        name="tile_that_scales_by_its_number",
        file=planted.file,
        before=prologue,
        after=f"{prologue.replace(planted.before, planted.after)}\n    q = (q * (1 + tl.program_id(0))).to(q.dtype)",
        outputs=("o",),
        modelled_on="two programs that write different values",
    )

    found = failures(mutant(differing, tmp_path), CASES, order)
    assert {(v.check, v.error) for v in found} == {("determinism", "order")}
    assert failures(load_subject("bundled"), CASES, order) == []


def test_the_fills_of_a_plan_are_those_of_the_interpreter():
    assert FILLS == ALL_FILLS
