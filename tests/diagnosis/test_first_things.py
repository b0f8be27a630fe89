"""A setting or a tensor that every call has of the first one, or of the first one with a key, is named."""

import dataclasses

import pytest

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.state.first_things import of_the_first_call
from flashverify.judge.verdict import Status, Verdict
from tests.diagnosis.keeping import Keeping
from tests.diagnosis.planted import planted

SECONDS = 300.0
CASE = "fv1 batch=2 heads_q=2 seq_q=6 seq_k=14 dtype=fp32 backward=no"


class OfTheFirst(Keeping):
    """One field of the problem, or of its mask, is that of the first call that has it, under a key."""

    def __init__(self, has, changed, key=lambda _: ()):
        super().__init__(key)
        self.has, self.changed = has, changed

    def forward(self, problem):
        if self.has(problem):
            problem = self.changed(problem, self.keep(problem, problem))
        return super().forward(problem)


def window(problem, first):
    mask = dataclasses.replace(problem.case.mask, window=first.case.mask.window)
    return dataclasses.replace(problem, case=dataclasses.replace(problem.case, mask=mask))


def left_side(problem, first):
    side = (first.case.mask.window[0], problem.case.mask.window[1])
    mask = dataclasses.replace(problem.case.mask, window=side)
    return dataclasses.replace(problem, case=dataclasses.replace(problem.case, mask=mask))


def causal(problem, first):
    mask = dataclasses.replace(problem.case.mask, causal=first.case.mask.causal)
    return dataclasses.replace(problem, case=dataclasses.replace(problem.case, mask=mask))


def alignment(problem, first):
    case = problem.case
    if case.mask.causal is not None:
        return causal(problem, first)
    end = "bottom-right" if first.case.mask.aligned_at_end else None
    mask = dataclasses.replace(case.mask, window_alignment=end)
    return dataclasses.replace(problem, case=dataclasses.replace(case, mask=mask))


def cap(problem, first):
    return dataclasses.replace(problem, case=dataclasses.replace(problem.case, logits=first.case.logits))


def sink(problem, first):
    return dataclasses.replace(problem, sink=first.sink.clone())


def sides(problem):
    return tuple(side is None for side in problem.case.mask.window)


def asked(subject, *texts):
    """The verdict of the last case after calls with the others."""
    cases = [parse_case(f"{CASE} {text} seed={number}") for number, text in enumerate(texts, 1)]
    for each in cases[:-1]:
        judge_case(subject, each, Plan(checks=("accuracy",)))
    return cases[-1], judge_case(subject, cases[-1], Plan(checks=("accuracy",))).failures[0]


@pytest.mark.parametrize(
    ("subject", "texts", "name", "words"),
    [
        pytest.param(
            lambda: OfTheFirst(lambda p: p.window, window, sides),
            ("window=5,*", "window=2,4", "window=3,1"),
            "stale-window",
            "the first one with a window on the same sides",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            lambda: OfTheFirst(lambda p: p.window and p.window[0] is not None, left_side),
            ("window=*,1", "window=5,2", "window=2,4", "window=3,1"),
            "stale-window-left",
            "the first call of the process that has one",
            marks=pytest.mark.thorough,
        ),
        (
            lambda: OfTheFirst(lambda p: p.softcap, cap, lambda p: p.k.shape[1]),
            ("heads_kv=2 softcap=0.75", "heads_kv=1 softcap=2.5", "heads_kv=1 softcap=1.25"),
            "stale-softcap",
            "the first one with its number of kv heads",
        ),
        pytest.param(
            lambda: OfTheFirst(lambda p: p.sink is not None, sink, lambda p: p.q.shape[1]),
            ("sink=yes", "sink=yes"),
            "stale-sink",
            "the first call of the process that has one",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_what_is_kept_of_the_first_call_is_named(subject, texts, name, words):
    subject = subject()
    case, verdict = asked(subject, *texts)
    found = diagnose(subject, case, verdict, seconds=SECONDS)

    assert (found.name, found.also) == (name, ())
    assert words in found.sentence


def test_an_alignment_is_that_of_the_first_call_only_where_a_fresh_process_is_right():
    subject = OfTheFirst(lambda p: p.causal, causal)
    case, verdict = asked(subject, "causal=top-left", "causal=bottom-right")
    later = Verdict(check="reuse", status=Status.FAIL, output="o", error="bound")

    assert diagnose(subject, case, verdict, seconds=SECONDS).name == "causal-top-left"
    assert diagnose(subject, case, later, seconds=SECONDS).name == "stale-causal"


def test_a_window_is_aligned_as_the_causal_mask_of_the_first_call_where_a_fresh_process_is_right():
    class Aligned(OfTheFirst):
        def window_shift(self, problem, queries, keys):
            return keys - queries if problem.window_alignment == "bottom-right" else 0

    subject = Aligned(lambda p: p.causal or p.window, alignment)
    case, verdict = asked(subject, "causal=bottom-right", "window=*,0")
    found = diagnose(subject, case, verdict, seconds=SECONDS, afresh=lambda: False)

    assert found.name == "stale-alignment"
    assert "the first call of the process that has one" in found.sentence


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        ({"scale": lambda s, p: 0.25}, "scale=0.25"),
        ({"window": lambda s, i, j, left, right: (j >= i - left - 1) & (j <= i + right)}, "window=4,1"),
    ],
)
def test_what_a_kernel_does_always_is_of_no_first_call(methods, text):
    subject = planted(**methods)
    case, _ = asked(subject, text, "window=3,1" if "window" in text else "scale=0.5")

    assert of_the_first_call(subject, case, Clock().end(SECONDS), certain=False) is None


@pytest.mark.thorough
def test_a_thing_that_any_other_call_would_explain_as_well_is_not_said_to_be_kept():
    """A row without a live block is dense: it computes as any pattern that has one would make it."""
    subject = planted(live=lambda s, p, live: live | ~live.any(-1, keepdim=True))
    case, verdict = asked(subject, "blocks=64,64,255,3", "blocks=64,64,0,4")

    assert of_the_first_call(subject, case, Clock().end(SECONDS), certain=False) is None
    assert not diagnose(subject, case, verdict, seconds=3.0).name.startswith("stale")


@pytest.mark.parametrize(
    ("answer", "name"),
    [(True, ""), *(pytest.param(x, "stale-sink", marks=pytest.mark.thorough) for x in (False, None))],
)
def test_a_first_call_of_another_process_that_fails_so_refutes(answer, name):
    subject = OfTheFirst(lambda p: p.sink is not None, sink, lambda p: p.q.shape[1])
    case, verdict = asked(subject, "sink=yes", "sink=yes")
    questions = []

    def afresh():
        questions.append(case)
        return answer

    found = diagnose(subject, case, verdict, seconds=20.0 if name else 2.0, afresh=afresh)

    assert (found.name, len(questions)) == (name, 1)
