"""The kinds that a compiled subject is drawn from, and a case that is run for its launches alone."""

import pytest
import torch

from flashverify import Supports, parse_case, subject
from flashverify.campaign.ahead import AheadToolkit, ahead_of, since
from flashverify.campaign.protocol import Spent
from flashverify.campaign.toolkit import bundled
from flashverify.campaign.worker.search import draw
from flashverify.case.space.compile_keys import list_compile_keys
from flashverify.case.space.strategies import GPU, cases
from flashverify.checks import Plan
from flashverify.checks.rehearsal import rehearse_case
from flashverify.errors import UsageError
from flashverify.launching.rehearsal import rehearsed_launches

SUPPORTS = Supports(dtypes=("fp32", "bf16"), masks=("causal",), logits=("softcap",), dim_max=64, equal_dims=True)


def made(supports=SUPPORTS, calls=None, fails=False, computes=True):
    @subject(supports=supports, device="cpu")
    def mine(p):
        if calls is not None:
            calls.append(p.case)
        if fails:
            raise ValueError("no")
        s = (p.q.float() @ p.k.float().mT * p.scale).softmax(-1)
        found = (s @ p.v.float()).to(p.q.dtype), s.sum(-1)
        return found if computes else tuple(x + torch.rand_like(x) for x in found)

    return mine


def test_the_first_kinds_are_those_of_a_search_and_the_list_goes_on():
    usual, total = bundled.kinds(made())
    everything = bundled._kinds(made())

    assert 0 < usual <= total == len(everything) == len(set(everything))
    few = list_compile_keys(SUPPORTS, [(64, 64), (32, 32)], [("fp32", "ieee")], 20)
    assert list_compile_keys(SUPPORTS, [(64, 64), (32, 32)], [("fp32", "ieee")], 400)[: len(few)] == few
    assert bundled.kinds(made(Supports(dtypes=("fp32",), compiles=False))) == (0, 0)


def test_cases_of_a_kind_share_what_a_kernel_is_compiled_for():
    mine = made()
    listed = bundled._kinds(mine)
    for number in (0, 3):
        drawn = draw(bundled.of_kinds(mine, (number,)), 12, 5)
        kind = listed[number]
        assert len(drawn) == 12
        assert {(c.dim_qk, c.dim_v) for c in drawn} == {kind.dims}
        assert {c.dtype for c in drawn} == {kind.dtype}
        assert {frozenset(c.mask.parts()) for c in drawn} == {kind.parts}
    assert {c.dtype for c in draw(cases(SUPPORTS, profile=GPU, kinds=listed[:6]), 30, 1)} == {"fp32", "bf16"}


def test_a_rehearsal_makes_the_passes_of_a_judgement_and_judges_nothing():
    case = parse_case("fv1 seq_q=5 seq_k=9 dim_qk=8 dim_v=8 dtype=fp32")
    plans = [Plan.fuzz(case), Plan(checks=("accuracy", "padding", "reuse"), calls=2)]
    counts = []
    for plan in plans:
        calls = []
        assert rehearse_case(made(calls=calls), case, plan) == ""
        counts.append(len(calls))

    assert 2 <= counts[0] <= 5
    assert counts[1] > 6
    assert rehearse_case(made(fails=True), case, plans[0]) == "ValueError: no"
    assert rehearse_case(made(), parse_case("fv1 dtype=fp16"), plans[0]) == "", "what is not supported is not run"


def test_a_rehearsal_asks_each_question_to_its_end_on_streams_and_in_graphs_too():
    case = parse_case("fv1 seq_q=5 seq_k=9 dim_qk=8 dim_v=8 dtype=fp32 causal=top-left")
    passes = {}
    for check, question in (
        *(("reuse", name) for name in ("settings", "stream", "together", "graph")),
        ("determinism", "repeat"),
        ("addresses", "all"),
    ):
        calls = []
        with rehearsed_launches((9, 0)):
            plan = Plan(checks=("accuracy", check), questions={check: (question,)})
            assert rehearse_case(made(calls=calls, computes=False), case, plan) == ""
        passes[question] = len(calls) - 1  # beside the base pass

    # Two other settings and the case again; the case and one with other values, eight times each; what warms up, is captured and is eager;
    # two repeats, since no equal bits are promised, each behind a pass over other values.
    assert passes == {"settings": 3, "stream": 1, "together": 17, "graph": 5, "repeat": 4, "all": 0}


def test_what_was_spent_is_a_difference():
    assert since(Spent(1, 2.0, 3.0), Spent(4, 2.5, 3.25)) == Spent(3, 0.5, 0.25)
    before = bundled.spent()
    assert since(before, bundled.spent()).compiled == 0
    assert before.oracle >= 0


def test_a_toolkit_that_cannot_compile_ahead_is_named():
    assert isinstance(bundled, AheadToolkit)
    with pytest.raises(UsageError, match="AheadToolkit"):
        ahead_of(object())


def test_of_kinds_that_are_not_there_the_others_are_drawn_and_all_where_none_is():
    mine = made()
    _, total = bundled.kinds(mine)
    keys = {kind: bundled._kinds(mine)[kind] for kind in range(total)}

    def drawn(*kinds):
        return {(case.dim_qk, case.dtype) for case in draw(bundled.of_kinds(mine, kinds), 6, 1)}

    assert drawn(0, total) == drawn(0) == {(keys[0].dims[0], keys[0].dtype)}
    assert len(drawn(total, total + 7)) > 1
