"""What a later call keeps of an earlier one gets the name of the thing that is kept."""

import dataclasses
import itertools
import math

import pytest
import torch

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.checks.passes.execution import execute
from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.state import calling, suspecting
from flashverify.diagnosis.state import pairs as state_pairs
from flashverify.diagnosis.state.naming import kept_from_earlier
from flashverify.diagnosis.state.suspecting import of_a_later_call
from flashverify.judge.verdict import Status, Verdict
from flashverify.subjects import Contract, Supports
from tests.checks.naive import SUPPORTS, attention, make
from tests.checks.stale import stale
from tests.diagnosis import keeping
from tests.diagnosis.keeping import a_step, a_thing, an_output, by_address
from tests.diagnosis.planted import Plain, planted
from tests.fast_tier import fast_one_in, thorough_in

SECONDS = 300.0
"""A name is found in one or two; it must not depend on how busy the machine is."""
CASE = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=6 seq_k=7 dtype=fp32 seed=1"
FORWARD = f"{CASE} backward=no"
KEPT = {
    "stale-bias": (lambda: a_thing("bias"), f"{CASE} bias=full", "values"),
    "stale-bias by address": (lambda: a_thing("bias", key=by_address), f"{CASE} bias=full", "values"),
    "stale-sink": (lambda: a_thing("sink"), f"{CASE} sink=yes", "values"),
    "stale-bitmap": (lambda: a_thing("bitmap"), f"{FORWARD} bitmap=128,3", "settings"),
    "stale-blocks": (lambda: a_thing("blocks"), f"{FORWARD} blocks=16,16,128,4", "settings"),
    "stale-key-lengths": (lambda: a_thing("key_lengths"), f"{FORWARD} klen=5,7", "lengths"),
    "stale-query-lengths": (lambda: a_thing("query_lengths"), f"{FORWARD} qlen=5,6", "lengths"),
    "stale-tree": (lambda: a_thing("tree"), f"{FORWARD} tree=-1,0,0,1,1,2", "settings"),
    "stale-causal": (lambda: a_thing("causal"), f"{FORWARD} causal=top-left", "settings"),
    "stale-window": (lambda: a_thing("window"), f"{FORWARD} causal=top-left window=3,0", "settings"),
    "stale-softcap": (lambda: a_thing("logits"), f"{FORWARD} softcap=2", "settings"),
    "stale-scale": (lambda: a_thing("scale", forward=False), CASE, "settings"),
    "stale-dropout-seed": (lambda: a_thing("values"), f"{CASE} dropout=0.25", "values"),
    "stale-do": (lambda: a_thing("do"), CASE, "values"),
    "stale-v": (lambda: a_thing("v"), FORWARD, "values"),
    "stale-dlse of a call that has none": (keeping.dlse_where_there_is_none, CASE, "settings"),
    "stale-slopes of a call that has none": (keeping.slopes_where_there_are_none, f"{CASE} alibi=yes", "settings"),
    "stale-output-lse": (lambda: an_output("lse"), FORWARD, "values"),
    "stale-output-dbias": (lambda: an_output("dbias"), f"{CASE} bias=full", "values"),
    "stale-added-dbias": (lambda: an_output("dbias", added=True), f"{CASE} bias=full", "values"),
    "stale-added-dv": (lambda: an_output("dv", added=True), CASE, "calls"),
    "stale-added-dq": (keeping.gradients_that_add_up, CASE, "backward"),
    "stale-lse": (lambda: a_step("backward_lse"), CASE, "values"),
    "stale-ds": (keeping.the_ds, CASE, "values"),
    "stale-mean-of-k": (keeping.the_mean_of_k, FORWARD, "values"),
    "stale-strides of outputs too": (keeping.the_strides_of_q_and_o, FORWARD, "storage"),
    "stale-page-table": (keeping.the_page_table, f"{FORWARD} page_size=4", "values"),
    "stale-elements-o": (keeping.the_rest_of_a_larger_problem, FORWARD, "larger"),
}
"""By the name: the subject, a case, and the question that fails."""
REPEATED = (
    "stale-bias by address", "stale-sink", "stale-blocks", "stale-key-lengths", "stale-causal", "stale-window", "stale-softcap",
    "stale-dlse of a call that has none", "stale-output-dbias",
)  # fmt: skip
"""Things that other tests here and of first calls and calls before have, and a second one of a kind of thing and key."""


def diagnosed(subject, case, question, seconds=SECONDS):
    """The diagnosis of a failure of `reuse` under a question."""
    verdict = Verdict(check="reuse", status=Status.FAIL, output="o", error=question)
    return diagnose(subject, parse_case(case), verdict, seconds=seconds)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", fast_one_in(4, thorough_in(REPEATED, KEPT)))
def test_what_is_kept_is_named(name):
    build, case, question = KEPT[name]
    found = diagnosed(build(), case, question)

    assert found.name == name.split(" ", maxsplit=1)[0], found
    assert found.place
    assert "3 pairs" in found.evidence
    assert "heads and channels that no call had before" not in found.sentence


@pytest.mark.parametrize(
    "name", ["result, object, address, version, strides and dtype", "strides, shapes", "dtype, shapes"]
)
def test_a_failure_of_the_check_is_named(name):
    subject, question = stale(name)
    case = parse_case(
        f"fv1 heads_q=2 heads_kv=2 seq_q=6 seq_k=7 dtype={'fp16' if name[0] == 'd' else 'fp32'} seed=1 backward=no"
    )
    plan = Plan(checks=("accuracy", "reuse"), questions={"reuse": (question,)})
    failures = judge_case(subject, case, plan).failures
    found = diagnose(subject, case, failures[0], seconds=SECONDS)

    assert found.name == {"r": "stale-output-o-lse", "s": "stale-strides", "d": "stale-dtype"}[name[0]]
    assert ("addresses, tensor objects or versions" in found.sentence) is ("address" in name)


def test_a_right_subject_gets_no_name():
    found = diagnosed(keeping.Keeping(), FORWARD, "values", seconds=1.0)

    assert found.name == ""
    assert found.sentence.startswith("Asked once more, the check does not fail")


@pytest.mark.thorough
def test_a_failure_about_values_that_a_later_call_alone_shows_is_named():
    subject = a_thing("key_lengths", key=lambda problem: problem.q.shape[0])
    first, case = (parse_case(f"{FORWARD} klen={lengths}") for lengths in ("5,7", "7,2"))
    judge_case(subject, first, Plan(checks=("accuracy",)))
    failures = judge_case(subject, case, Plan(checks=("accuracy",))).failures
    found = diagnose(subject, case, failures[0], seconds=SECONDS)

    assert found.name == "stale-key-lengths"


@pytest.mark.parametrize("check", fast_one_in(2, ("padding", "determinism"), kept=2))
def test_what_is_kept_is_named_after_a_failure_of_any_check(check):
    verdict = Verdict(check=check, status=Status.FAIL, output="lse", error="repeat")
    found = diagnose(an_output("lse"), parse_case(FORWARD), verdict, seconds=SECONDS)

    assert found.name == "stale-output-lse"


@pytest.mark.parametrize(("wrong", "suspected"), [((101,), False), ((101, 103, 105), True)])
def test_a_second_call_that_is_wrong_once_is_chance(monkeypatch, wrong, suspected):
    asked = []
    monkeypatch.setattr(suspecting, "kept_from_earlier", lambda *_, **__: asked.append(1))
    subject = make(lambda p: (lambda o, lse: (o * (1 + (p.case.values.seed in wrong)), lse))(*attention(p)))
    of_a_later_call(
        subject, parse_case(f"fv1 seq_q=6 seq_k=7 dtype=fp32 backward=no seed={wrong[0]}"), SECONDS, Clock()
    )

    assert bool(asked) == suspected


@pytest.mark.parametrize("batch", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_state_is_suspected_where_the_batch_cannot_change(monkeypatch, batch):
    class OneBatch(Supports):
        def refusal(self, case):
            return "batch" if case.batch != batch else super().refusal(case)

    fields = {f.name: getattr(Plain.supports, f.name) for f in dataclasses.fields(Supports)}
    subject = a_thing("logits")
    subject.supports = OneBatch(**fields)
    case = parse_case(f"fv1 batch={batch} seq_q=6 seq_k=7 dtype=fp32 softcap=2 backward=no")
    found = of_a_later_call(subject, case, SECONDS, Clock())

    assert found is not None
    assert found.name == "stale-softcap"


@pytest.mark.thorough
def test_what_goes_by_heads_alone_is_named_though_every_size_was_asked():
    subject = a_thing("sink", key=lambda problem: problem.q.shape[1])
    case = parse_case(f"{FORWARD} sink=yes")
    assert not judge_case(subject, dataclasses.replace(case, seq_q=3), Plan(checks=("accuracy",))).failures
    found = of_a_later_call(subject, case, SECONDS, Clock())

    assert found is not None
    assert found.name == "stale-sink"
    assert "(same shapes, with heads and channels that no call had before)" in found.sentence


def test_a_first_call_that_fails_in_the_same_way_refutes_a_name(monkeypatch):
    monkeypatch.setattr(state_pairs, "_NUMBERS", itertools.count())  # of some numbers the sizes leave lengths no say
    everything = planted(keys=lambda _, length: 1 << 20)  # past its length a row sees what the causal mask shows
    case = parse_case("fv1 seq_q=10 seq_k=32 dim_qk=8 dim_v=8 klen=31 causal=top-left backward=no")
    end = Clock().end(3.0)

    assert kept_from_earlier(everything, case, "lengths", 0, end, wide=False) is None


def test_a_failure_that_is_gone_says_so():
    calls = []

    def once(p):
        calls.append(1)
        o, lse = attention(p)
        return o * (1 + (len(calls) == 1)), lse

    case = parse_case("fv1 seq_q=6 seq_k=7 dtype=fp32 backward=no")
    subject = make(once)
    failures = judge_case(subject, case, Plan(checks=("accuracy",))).failures
    found = diagnose(subject, case, failures[0], seconds=1.0)

    assert found.name == ""
    assert "depends on what was called before, or on chance" in found.sentence


@pytest.mark.parametrize("kind", ["repeat", "batch"])
def test_a_failure_of_determinism_is_told_in_its_words(kind):
    calls = []

    def function(p):
        calls.append(1)
        o, lse = attention(p)
        changed = p.case.batch == 1 if kind == "batch" else len(calls) % 2
        return o * (1 + 2.0**-22 * changed), lse

    case = parse_case("fv1 batch=2 seq_q=6 seq_k=7 dtype=fp32 backward=no")
    subject = make(function, contract=Contract(deterministic=True, batch_invariant=True))
    failures = judge_case(subject, case, Plan.only("determinism", case)).failures
    found = diagnose(subject, case, failures[0], seconds=1.0)

    assert found.name == ""
    assert found.sentence.startswith(
        {"repeat": "The same problem gave other bits", "batch": "A part of a problem gave"}[kind]
    )
    assert found.place.startswith("o fails")


@pytest.mark.thorough
def test_a_failure_of_a_launch_is_diagnosed_with_that_launch():
    def function(p):
        o, lse = attention(p)
        return o, lse / math.log(2) if dict(p.case.launch).get("n") == 2 else lse

    supports = dataclasses.replace(SUPPORTS, launch=(("n", (1, 2)),))
    case = parse_case("fv1 seq_q=6 seq_k=7 dtype=fp32 backward=no launch=n:1")
    subject = make(function, supports=supports)
    failures = judge_case(subject, case, Plan.only("config", case)).failures
    found = diagnose(subject, case, failures[0], seconds=SECONDS)

    assert found.name == "lse-base-2"
    assert found.place.startswith("with the launch n = 2: lse")


def test_what_a_graph_keeps_of_its_capture_is_named(monkeypatch):
    def host(p):
        return attention(dataclasses.replace(p, key_lengths=torch.tensor(p.case.mask.key_lengths)))

    class Replays:
        def __init__(self, subject, problem):
            self.subject, self.problem = subject, problem

        def replay(self, problem):
            return dataclasses.replace(execute(self.subject, self.problem), problem=problem)

    monkeypatch.setattr(calling, "captured", Replays)
    found = diagnosed(make(host), f"{FORWARD} klen=4,7", "graph")

    assert found.name == "stale-key-lengths"
    assert "in the replay of a graph that was captured over the first one" in found.sentence


def test_the_outputs_of_one_kernel_are_named_where_another_is_wrong_in_another_way():
    class Subject(type(an_output("lse"))):
        def backward(self, problem, forward):
            found = super().backward(problem, forward)
            later = self.keep(problem, problem.case.values, "values") != problem.case.values
            return dataclasses.replace(found, dq=found.dq * (1 + 0.5 * later))

    found = diagnosed(Subject(), CASE, "values")

    assert found.name == "stale-output-lse"
    assert "other outputs are wrong in another way" in found.evidence
