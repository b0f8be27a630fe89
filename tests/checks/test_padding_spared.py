"""Launches that need not run: passes of four checks have them, and no read of padding is hidden by them."""

import dataclasses
import sys
from collections import Counter

import pytest

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.checks.padding import REPEATS
from flashverify.checks.passes import execution
from flashverify.checks.registry import CHECK_SPECS, check_spec
from flashverify.interpreter.repeating import Repeating
from flashverify.interpreter.repeats import Known
from tests.checks.padded_kernels import IN_FORWARD, IN_GRADIENTS, IN_HOST, attend

pytestmark = pytest.mark.usefixtures("session")

CASE = parse_case("fv1 batch=2 heads_q=2 heads_kv=2 seq_q=5 seq_k=9 dim_qk=16 dim_v=16 dtype=fp32 klen=4,9 seed=3")
READS = {**IN_FORWARD, **IN_GRADIENTS, **IN_HOST}
PADDING = Plan(checks=("padding",), questions={"padding": ("inf",)})
NOT_ALIKE = {"determinism": ("solo-sequence", "solo-head", "permuted"), "reuse": ("calls",)}
LOADS_ALIKE = {"values", "lengths", "settings", "storage", "larger", "backward", "forward-between", "another-do"}
SPARING = {"padding", "determinism", "relations", "reuse"}
OTHERS = Plan(checks=("accuracy", "nonfinite", "memory", "sanitizer"))


@pytest.fixture
def spared(monkeypatch):
    """Names of the modules that had a launch spared, with the number of these launches."""
    found, repeat = Counter(), Known.repeat

    def counted(self, arguments):
        found.update(callers())
        repeat(self, arguments)

    monkeypatch.setattr(Known, "repeat", counted)
    return found


def callers():
    """Names of the checks' modules that are on the stack."""
    frame, names = sys._getframe(1), set()
    while frame is not None:
        names.add(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    own = {name.removeprefix("flashverify.checks.") for name in names if name.startswith("flashverify.checks.")}
    return own - {"engine", "passes.execution"}


def failures(subject, plan, case=CASE):
    return {(v.check, v.error, v.output) for v in judge_case(subject, case, plan).failures}


# --- what is spared ---------------------------------------------------------------------------------------------------


def test_a_kernel_that_reads_no_padding_runs_in_the_base_pass_alone(spared, session):
    begun = session.attempts
    result = judge_case(attend(), CASE, PADDING)

    assert result.failures == ()
    assert spared == {"padding": 2}
    assert session.attempts == begun + 2


def test_no_other_check_has_a_launch_spared(spared, monkeypatch):
    watching, passes = execution._watching, Counter()

    def counted(*args, **asked):
        for name in callers() or {"base pass"}:
            passes[name, asked.get("kept") is not None, asked["known"] is not None] += 1
        return watching(*args, **asked)

    monkeypatch.setattr(execution, "_watching", counted)
    result = judge_case(attend(), CASE, Plan())

    assert result.failures == ()
    assert {name.split(".")[0] for name in spared} == SPARING
    assert passes["base pass", True, False] == 1
    assert {name.split(".")[0] for name, _, known in passes if known} == SPARING
    assert {name for name, noted, _ in passes if noted} == {"base pass"}


def test_questions_say_that_their_passes_load_alike():
    alike = {spec.name: {each.name for each in spec.questions if each.loads_alike} for spec in CHECK_SPECS}

    assert {name for name, questions in alike.items() if questions} == SPARING
    assert alike["padding"] == set(check_spec("padding").question_names)
    assert alike["determinism"] == {"repeat", "program-order"}
    assert alike["relations"] == {"double-do", "linear-do", "alone"}
    assert alike["reuse"] == LOADS_ALIKE


def test_a_base_pass_that_no_other_pass_loads_alike_notes_nothing(monkeypatch):
    asked, watching = [], execution._watching
    monkeypatch.setattr(execution, "_watching", lambda *args, **more: asked.append(more) or watching(*args, **more))
    whole = dataclasses.replace(CASE, mask=dataclasses.replace(CASE.mask, key_lengths=(9, 9)))

    judge_case(attend(), CASE, Plan(checks=("accuracy", "determinism", "reuse"), questions=NOT_ALIKE))
    judge_case(attend(), CASE, Plan(checks=("padding",), questions={"padding": ()}))
    judge_case(attend(), whole, Plan(checks=("padding", "determinism"), questions=NOT_ALIKE))

    assert {(more["kept"], more["known"]) for more in asked} == {(None, None)}


def test_a_launch_that_comes_twice_in_a_pass_runs_twice_in_the_base_pass(spared, session):
    inner, begun = attend(), session.attempts

    def twice(p):
        inner.function(p)
        return inner.function(p)

    assert failures(dataclasses.replace(inner, function=twice), PADDING) == set()
    assert spared == {"padding": 3}
    assert session.attempts == begun + 3


def test_repeats_that_tell_chance_from_padding_all_run(spared, session):
    begun = session.attempts

    assert failures(attend("into dq", deterministic=None), PADDING) == {("padding", "padding", "dq")}
    assert spared == {"padding": 1}
    assert session.attempts == begun + 3 + 2 * 2 * REPEATS


# --- what is found ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", READS)
def test_a_read_of_padding_is_found_by_the_check_padding_alone(read):

    assert failures(attend(read), PADDING) == {("padding", "padding", output) for output in READS[read]}
    assert failures(attend(read), OTHERS) == set()


@pytest.mark.parametrize("read", READS)
def test_a_sparing_of_every_launch_would_hide_it(read, monkeypatch):
    left, finish = {}, Repeating.on_finish

    def keep(self, launch):
        if self.watched.kept is not None:
            left[launch.name] = [x.tensor.clone() for x in self.tensors]
        finish(self, launch)

    def spare(self, _function, launch, _meanings):
        if self.watched.known is None:
            return False
        for argument, held in zip(self.tensors, left[launch.name], strict=True):
            if not self._state(argument).is_input:
                argument.tensor.copy_(held)
        return True

    monkeypatch.setattr(Repeating, "on_finish", keep)
    monkeypatch.setattr(Repeating, "repeated", spare)

    assert failures(attend(read), PADDING) == set()
