"""Runs of a subject: each once, none that would end too late, and none that stops the diagnosis."""

from dataclasses import replace

import pytest

from flashverify.case.text import parse_case
from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.neighbours import neighbours, simplifications
from flashverify.diagnosis.telling_cases import telling
from flashverify.diagnosis.trials import Trials, work
from tests.diagnosis.planted import LOG2E, Plain, planted
from tests.diagnosis.test_diagnosis import FORWARD, first_failure

CASE = parse_case(FORWARD)


class Steps:
    """A wall clock that goes on by `step` with each look at it, of a machine with a processor for whoever asks."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def wall(self):
        self.now += self.step
        return self.now

    def clock(self):
        return Clock(wall=self.wall, starved=lambda: 0.0)


def test_no_case_is_run_that_would_end_after_the_time():
    clock = Steps(1.0)
    found = Trials(Plain(), 10.0, clock=clock.clock())
    begun = clock.now
    ran = [scene.case for scene in found.of(neighbours(Plain.supports, CASE))]
    assert 1 <= len(ran) <= 4
    assert clock.now - begun <= 10.0


def test_a_small_case_is_run_after_a_slow_large_one():
    clock = Steps(0.0)

    class Slow(Plain):
        def forward(self, problem):
            clock.now += work(problem.case) / 1000
            return super().forward(problem)

    found, large = Trials(Slow(), 10.0, clock=clock.clock()), replace(CASE, seq_q=80, seq_k=90)
    assert found.scene(large) is not None
    other = replace(large, values=replace(large.values, seed=5))
    assert [scene.case for scene in found.of([other, CASE])] == [CASE]


def test_a_diagnosis_runs_nothing_after_its_time_and_says_what_it_has():
    clock, begun = Steps(0.02), []

    def scale(self, problem):
        begun.append(clock.now)
        return problem.scale * LOG2E

    subject = planted(scale=scale)
    verdict = first_failure(subject, CASE)
    begun.clear()
    found = diagnose(subject, CASE, verdict, seconds=10.0, clock=clock.clock())
    assert len(begun) > 1
    assert max(begun) <= 10.0 + 3 * clock.step  # it was made at one step, and who runs a case looks at it first
    assert found.name == ""
    assert found.place


def test_a_case_is_run_once():
    class Counting(Plain):
        runs = 0

        def forward(self, problem):
            Counting.runs += 1
            return super().forward(problem)

    found = Trials(Counting(), 100.0)
    assert found.scene(CASE) is found.scene(CASE)
    assert Counting.runs == 1


def test_a_case_on_which_the_subject_raises_says_nothing():
    def raises(self, o, z, v, lse):
        raise RuntimeError

    found = Trials(planted(output=raises), 100.0)
    assert found.scene(CASE) is None
    assert found.known(CASE)


def test_neighbours_are_other_cases_that_the_subject_accepts():
    case = parse_case(FORWARD + "causal=top-left window=2,* klen=5 heads_q=2 sink=yes softcap=2")
    supports = Plain.supports
    near, plainer = list(neighbours(supports, case)), list(simplifications(supports, case))
    for found in (near, plainer):
        assert case not in found
        assert len(set(found)) == len(found)
        assert [c for c in found if supports.refusal(c) is not None] == []
    assert {"causal", "window", "key_lengths"} == {
        name for c in plainer for name in case.mask.parts() - c.mask.parts() if c.seq_q == case.seq_q
    }
    assert {c.dtype for c in near} == {"fp16", "bf16", "fp32"}
    assert {8, 64, 128} <= {c.dim_qk for c in near}


@pytest.mark.slow
def test_the_first_case_is_tried_where_the_minimal_one_gives_no_name():
    """Of the cases related to the small one the subject accepts none."""
    supports = replace(Plain.supports, also=lambda case: None if case == CASE or case.seq_k % 10 == 0 else "its size")
    subject = planted(scale=lambda s, p: p.scale * LOG2E, supports=supports)
    first = parse_case(FORWARD.replace("seq_k=7", "seq_k=40"))
    verdict = first_failure(subject, CASE)
    assert diagnose(subject, CASE, verdict, seconds=5).name == ""
    assert diagnose(subject, CASE, verdict, first=first, seconds=300).name == "log2e-twice"


@pytest.mark.slow
@pytest.mark.thorough
def test_a_name_that_the_first_case_gives_must_explain_the_minimal_one():
    """On the small case the LSE is wrong in another way than on the first one."""
    subject = planted(lse=lambda s, lse, without_sink: lse * (LOG2E if lse.shape[2] > 8 else 1.25))
    first = parse_case(FORWARD.replace("seq_q=5", "seq_q=40"))
    verdict = first_failure(subject, CASE)
    assert diagnose(subject, first, verdict, seconds=300).name == "lse-base-2"
    assert diagnose(subject, CASE, verdict, first=first, seconds=4).name == ""


def test_a_subject_with_few_rows_is_asked_about_very_negative_and_large_logits_too():
    subject = planted(supports=replace(Plain.supports, max_seq_q=4))
    regimes = {case.values.regime for case in telling(subject, parse_case(FORWARD.replace("seq_q=5", "seq_q=1")))}

    assert {"negative", "logits-1e4"} <= regimes


def test_rows_without_keys_are_told_from_padded_rows_and_from_weights_that_vanish():
    """All three look alike on a case whose only rows lie behind the declared length of the queries."""
    subject = planted(supports=replace(Plain.supports, max_seq_q=4))
    case = parse_case("fv1 seq_q=1 seq_k=1 dim_qk=8 dim_v=8 dtype=fp32 qlen=0 backward=no")
    cases = list(telling(subject, case))

    assert any(each.values.regime == "negative" and not each.mask.given() for each in cases), "every key is seen"
    empty = next(each for each in cases if each.mask.key_lengths == (0,))
    assert [part.name for part, _ in empty.mask.given()] == ["key_lengths"]
