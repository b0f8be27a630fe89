"""What a call has of the call before it, or of the first one of the process, whatever its shapes."""

import dataclasses

import pytest

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.state.following import follows_another, of_the_call_before
from flashverify.diagnosis.state.for_good import draws_of_the_first_call
from flashverify.diagnosis.state.primers import primers
from flashverify.diagnosis.state.suspecting import of_a_later_call
from flashverify.diagnosis.state.wording import tells_of_state
from flashverify.judge.record import Diagnosis
from flashverify.judge.verdict import Status, Verdict
from tests.diagnosis.following_others import (
    SUPPORTS,
    CapThatStays,
    CausalThatStays,
    EveryThird,
    Following,
    SeedOfTheFirst,
    Splits,
    UnknownAfterOtherRows,
    WindowOfTheCallBefore,
)
from tests.diagnosis.keeping import a_thing
from tests.diagnosis.planted import Plain, planted

SECONDS = 300.0
CASE = "fv1 batch=2 heads_q=2 heads_kv=1 seq_q=6 seq_k=14 dtype=fp32 seed=1 backward=no"
SMALL = CASE.replace("seq_q=6", "seq_q=5") + " dim_qk=16 dim_v=16"
"""As small as the smallest that a diagnosis makes of a case: one case of each size is asked about."""


def named(subject, case):
    """The diagnosis of a case that is held against the call before it."""
    return of_the_call_before(subject, parse_case(case), Clock().end(SECONDS))


@pytest.mark.parametrize(
    ("subject", "case", "name"),
    [
        (WindowOfTheCallBefore, f"{CASE} window=3,2", "stale-window"),
        (CapThatStays, CASE, "stale-softcap"),
        (CausalThatStays, CASE, "stale-causal"),
        (Splits, f"{CASE} launch=n_splits:4", "stale-splits"),
    ],
)
def test_what_a_call_has_of_another_one_of_any_shape_is_named(subject, case, name):
    found = named(subject(), case)

    assert found is not None
    assert (found.name, found.also) == (name, ())
    assert "3 calls" in found.evidence


def test_a_call_that_is_right_when_asked_again_says_so():
    assert "asked once more, the same call is right" in named(WindowOfTheCallBefore(), f"{CASE} window=3,2").sentence
    assert "and stays" in named(CapThatStays(), CASE).sentence


def test_calls_that_are_wrong_in_turn_are_counted():
    found = named(EveryThird(), CASE)

    assert found.name == ""
    assert found.reading.startswith(
        "Of 7 calls of one problem, one after the other, the third and sixth are wrong in o"
    )
    assert "every third one" in found.reading


def test_what_the_calls_compute_that_are_wrong_in_turn_is_said():
    class WithoutCausal(Following):
        def changed(self, problem, last):
            if self.calls % 2:
                return problem
            mask = dataclasses.replace(problem.case.mask, causal=None)
            return dataclasses.replace(problem, case=dataclasses.replace(problem.case, mask=mask))

    found = named(WithoutCausal(), f"{CASE} causal=top-left")

    assert "every second one" in found.reading
    assert "The wrong ones compute so: the causal mask is ignored" in found.sentence


@pytest.mark.thorough
def test_what_a_call_computes_after_others_is_said_where_it_is_of_no_call():
    class ScaleAfterOtherRows(Following):
        def changed(self, problem, last):
            if last.q.shape[2] == problem.q.shape[2]:
                return problem
            return dataclasses.replace(problem, case=dataclasses.replace(problem.case, scale=1.0))

    found = named(ScaleAfterOtherRows(), SMALL)

    assert "wrong after one with fewer rows or more rows" in found.reading
    assert "Then it computes so: the logits are not scaled" in found.sentence


@pytest.mark.thorough
def test_the_calls_after_which_one_is_wrong_are_said_where_nothing_explains_it():
    found = named(UnknownAfterOtherRows(), SMALL)

    assert found.name == ""
    assert "O of a call depends on the call before it: wrong after one with fewer rows or more rows" in found.reading
    wrong, right = found.reading.split(", right after one with ")
    assert "other values" in right
    assert "other values" not in wrong


@pytest.mark.parametrize(
    "subject",
    [Following, pytest.param(lambda: planted(keys=lambda _, length: length + 1), marks=pytest.mark.thorough)],
)
def test_a_subject_that_keeps_nothing_follows_no_call(subject):
    kept_nothing = subject()
    kept_nothing.contract = dataclasses.replace(kept_nothing.contract, deterministic=True)
    kept_nothing.supports = SUPPORTS
    case = parse_case(f"{SMALL} klen=9,14")

    assert follows_another(kept_nothing, case, Clock().end(SECONDS)) is None
    assert of_the_call_before(kept_nothing, case, Clock().end(3.0)) is None


def test_what_a_kernel_does_always_is_of_no_other_call():
    class AlwaysCausal(Following):
        def changed(self, problem, last):
            mask = dataclasses.replace(problem.case.mask, causal="top-left")
            return dataclasses.replace(problem, case=dataclasses.replace(problem.case, mask=mask))

    case = parse_case("fv1 seq_q=3 seq_k=4 dim_qk=8 dim_v=8 dtype=fp32 seed=1 backward=no")

    assert of_the_call_before(AlwaysCausal(), case, Clock().end(20.0)) is None


@pytest.mark.parametrize(
    ("subject", "what"), [(WindowOfTheCallBefore, "another window"), (CapThatStays, "a softcap"), (EveryThird, "")]
)
def test_a_subject_that_follows_the_call_before_is_suspected_of_what_differs(subject, what):
    assert follows_another(subject(), parse_case(f"{CASE} window=3,2"), Clock().end(SECONDS)) == what


FIRST_CALLS = [
    (lambda _: (), "the first call of the process with dropout"),
    (lambda problem: problem.q.shape[1], "the first call with its number of query heads"),
]


def after_other_calls(subject):
    """A case of which the subject computed others before."""
    first, *others, case = (parse_case(f"{CASE} dropout=0.5".replace("seed=1", f"seed={n}")) for n in (5, 6, 7))
    other = dataclasses.replace(first, heads_q=4, values=dataclasses.replace(first.values, seed=9))
    for each in (other, first, *others):
        judge_case(subject, each, Plan(checks=("accuracy",)))
    return case


def is_of_the_first_call(found, alone, words):
    assert found.name == ("stale-dropout-seed-alone" if alone else "stale-dropout-seed")
    assert words in found.sentence


@pytest.mark.thorough
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(("key", "words"), FIRST_CALLS)
def test_draws_of_the_first_call_are_named(alone, key, words):
    subject = SeedOfTheFirst(key, alone=alone)
    case = after_other_calls(subject)
    verdict = judge_case(subject, case, Plan(checks=("accuracy",))).failures[0]

    is_of_the_first_call(diagnose(subject, case, verdict, seconds=SECONDS), alone, words)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(("key", "words"), FIRST_CALLS)
def test_draws_of_the_first_call_are_those_of_the_draws_that_were_made_for_it(alone, key, words):
    subject = SeedOfTheFirst(key, alone=alone)
    case = after_other_calls(subject)

    is_of_the_first_call(of_a_later_call(subject, case, SECONDS, Clock()), alone, words)


def test_draws_that_are_wrong_in_another_way_are_those_of_no_first_call():
    class Subject(Plain):
        def kept(self, problem, keep):
            return 1 - keep

    case = parse_case(f"{CASE} dropout=0.5")
    subject = Subject()
    judge_case(subject, case, Plan(checks=("accuracy",)))

    assert draws_of_the_first_call(subject, case, Clock().end(SECONDS)) is None


@pytest.mark.parametrize(("name", "batch"), [("stale-keys", False), ("stale-longest-key-lengths", True)])
def test_what_goes_by_a_part_of_the_shapes_is_named(name, batch):
    memory = {}

    class Subject(Following):
        def changed(self, problem, last):
            mask, shape = problem.case.mask, problem.q.shape
            if not batch:
                lengths = (min(memory.setdefault(shape, problem.case.seq_k), problem.case.seq_k),) * shape[0]
            else:
                before = memory.setdefault(shape[0], mask.key_lengths)
                lengths = memory[shape[0]] = tuple(map(max, before, mask.key_lengths))
            case = dataclasses.replace(problem.case, mask=dataclasses.replace(mask, key_lengths=lengths))
            return dataclasses.replace(problem, case=case, key_lengths=problem.q.new_tensor(lengths).int())

    case = parse_case(f"{CASE} klen=9,14" if batch else CASE)
    found = of_a_later_call(Subject(), case, SECONDS, Clock())

    assert found is not None
    assert found.name == name


def test_only_the_failure_of_a_check_that_says_so_is_asked_for_equal_shapes_first():
    case = parse_case(f"{CASE} window=3,2")
    verdict = Verdict(check="reuse", status=Status.FAIL, output="o", error="bound")
    assert diagnose(WindowOfTheCallBefore(), case, verdict, seconds=SECONDS).name == "stale-window"
    verdict = Verdict(check="reuse", status=Status.FAIL, output="o", error="settings")
    assert "same shapes" in diagnose(a_thing("window"), case, verdict, seconds=SECONDS).sentence


def test_primers_differ_in_what_they_say():
    case = parse_case(f"{CASE} launch=n_splits:2 softcap=2")
    found = dict(primers(Splits(), case, 0))

    assert dict(found["a smaller n_splits"].launch) == {"n_splits": 1}
    assert dict(found["a larger n_splits"].launch) == {"n_splits": 4}
    assert found["a larger n_splits"] == dataclasses.replace(case, launch=found["a larger n_splits"].launch)
    assert found["fewer keys"].seq_k == 7
    assert found["no softcap"].logits.softcap is None
    assert all(other.values.seed != case.values.seed for what, other in found.items() if "n_splits" not in what)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (Diagnosis("stale-k"), True),
        (Diagnosis("scale-ignored"), False),
        (Diagnosis(reading="o of a call depends on the call before it: wrong after one with more rows."), True),
        (Diagnosis(reading="O sees keys that the tree hides."), False),
    ],
)
def test_which_diagnoses_are_about_state(found, state):
    assert tells_of_state(found) == state


@pytest.mark.parametrize("prefix", ["prefix=9,4", "prefix=9,4 window=3,*", "prefix=0,0"])
def test_a_case_with_a_prefix_has_primers_of_all_kinds(prefix):
    case = parse_case(f"{CASE} causal=bottom-right {prefix}")
    found = [dict(primers(Plain(), case, turn)) for turn in range(4)]

    assert all({"key lengths", "other lengths" if "9" in prefix else "fewer keys"} <= each.keys() for each in found)
    assert all(("window" in each) is ("window" not in prefix) for each in found)
