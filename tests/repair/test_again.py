"""A repair that is stored can be put in place again, and is taken back."""

import sys
from pathlib import Path

import msgspec
import pytest

from flashverify.case.text import parse_case
from flashverify.diagnosis.observe import look
from flashverify.interpreter import Sanitizer, faithful
from flashverify.interpreter.hooks import interpreting
from flashverify.judge.record import Repair
from flashverify.repair.again import with_repair
from tests.repair.loading import loading

CAUSAL = parse_case("fv1 seq_q=18 seq_k=21 dim_qk=16 dim_v=16 dtype=fp32 causal=top-left backward=no")
OTHER = parse_case("fv1 seq_q=33 seq_k=17 dim_qk=16 dim_v=16 dtype=fp32 causal=top-left seed=3 backward=no")
GRADIENTS = parse_case("fv1 seq_q=6 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32 causal=top-left")
LINE = "            see = see & (key[None, :] <= row[:, None])"
DK, DV = "        dk = ds.mT @ q * scale", "        dv = w.mT @ g"

loaded = pytest.fixture(loading)


@pytest.fixture(scope="module", autouse=True)
def _session():
    if not interpreting():
        pytest.skip("kernels are compiled in this process")
    with faithful(Sanitizer):
        yield


def repair_of(subject, function, before, after):
    file = sys.modules[subject.function.__module__].__file__
    at = Path(file).read_text(encoding="utf-8").split("\n").index(before) + 1
    return Repair("/".join(Path(file).parts[-2:]), at, function, before.strip(), after.strip(), 20, 12)


def test_with_the_repair_of_a_kernel_other_cases_are_right_and_without_it_they_fail_as_before(loaded):
    wrong = LINE.replace("<=", "<")
    subject = loaded("small_kernel.py", (LINE, wrong))
    repair = repair_of(subject, "kernel", wrong, LINE)

    assert look(subject, OTHER).failures
    with with_repair(subject, CAUSAL, repair) as there:
        assert there
        assert look(subject, OTHER).failures == {}
    assert look(subject, OTHER).failures


def test_the_repair_of_one_mistake_leaves_another_one(loaded):
    subject = loaded("small_backward.py", (DK, DK.replace(" * scale", "")), (DV, DV.replace("g", "(g + 1.0)")))

    with with_repair(subject, GRADIENTS, repair_of(subject, "backward", DK.replace(" * scale", ""), DK)) as there:
        assert there
        assert set(look(subject, GRADIENTS).failures) == {"dv"}


@pytest.mark.parametrize("changes", [{"before": "x = 1"}, {"function": "other"}, {"line": 1}, {"file": "a/b.py"}])
def test_what_the_subject_does_not_hold_is_not_put_in_place(loaded, changes):
    wrong = LINE.replace("<=", "<")
    subject = loaded("small_kernel.py", (LINE, wrong))
    repair = msgspec.structs.replace(repair_of(subject, "kernel", wrong, LINE), **changes)

    with with_repair(subject, CAUSAL, repair) as there:
        assert not there
        assert look(subject, CAUSAL).failures


def test_lines_that_go_leave_a_block_that_stands(loaded):
    subject = loaded("small_kernel.py", (LINE, f"            see = see & (key >= 0)[None, :]\n{LINE}"))
    gone = repair_of(subject, "kernel", LINE, "")

    assert look(subject, CAUSAL).failures == {}
    with with_repair(subject, CAUSAL, gone) as there:
        assert there
        assert look(subject, CAUSAL).failures
