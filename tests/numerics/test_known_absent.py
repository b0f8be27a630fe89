"""What is asked before it is handled: the quick answers, and that they change no bound."""

import dataclasses
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flashverify.case.memory.materialize import materialize
from flashverify.case.text import parse_case
from flashverify.numerics import (
    Form,
    OutputBound,
    accumulators,
    backward,
    flushing,
    forward,
    gradients,
    known_absent,
    overflow,
    prepare,
    result,
)
from flashverify.numerics.coefficients import OVERFLOW_FP32
from flashverify.numerics.flushing import flushable_part
from flashverify.numerics.known_absent import below, nowhere, somewhere, without
from flashverify.numerics.logits import logit_error
from flashverify.truth import Truth, inputs_of

CASES = (
    "fv1 heads_q=2 seq_q=20 seq_k=33 dim_qk=16 dim_v=8 dtype=bf16",
    "fv1 heads_q=4 heads_kv=2 seq_q=17 seq_k=9 dim_qk=16 dim_v=16 causal=bottom-right softcap=3 dlse=yes",
    "fv1 seq_q=8 seq_k=40 dim_qk=16 dim_v=16 bitmap=128,7 sink=yes dtype=fp32",
    "fv1 seq_q=12 seq_k=12 dim_qk=16 dim_v=16 regime=overflow causal=top-left",
    "fv1 batch=2 seq_q=12 seq_k=20 dim_qk=16 dim_v=16 klen=0,13 bias=full regime=large",
    "fv1 seq_q=9 seq_k=12 dim_qk=16 dim_v=16 regime=subnormal dtype=bf16",
    "fv1 heads_q=16 heads_kv=1 seq_q=6 seq_k=6 dim_qk=16 dim_v=16 dtype=bf16 causal=top-left edits=v:0,0,0,0:1.2e38",
    "fv1 seq_q=9 seq_k=12 dim_qk=16 dim_v=16 dtype=bf16 scale=1e-30 edits=k:0,0,1,2:1e30;v:0,0,2,1:1e12",
    "fv1 seq_q=9 seq_k=12 dim_qk=16 dim_v=16 edits=q:0,0,1,2:65504;k:0,0,3,4:inf",
)


def test_quick_questions() -> None:
    some = torch.tensor([[False, True], [False, False]])
    assert not nowhere(some)
    assert nowhere(some & False)
    assert nowhere(some[:, :0])
    assert nowhere(some[1:].expand(3, 2))
    x = torch.tensor([1.0, -3.0], dtype=torch.float64)
    assert below(x, 1.5)
    assert not below(x, 1.0)
    assert not below(x * math.nan, math.inf)
    assert not below(x / 0.0, math.inf)
    assert below(x[:0], -1.0)


def test_several_tensors_are_asked_with_one_wait_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.zeros(3), torch.tensor([0.0, 1e-300], dtype=torch.float64), torch.zeros(0), torch.tensor(math.nan)]
    assert somewhere(tensors) == [False, True, False, True]
    assert somewhere([]) == []
    waits: list[int] = []
    tolist = torch.Tensor.tolist

    def waiting(self: torch.Tensor) -> object:
        waits.append(1)
        return tolist(self)

    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(torch.Tensor, "tolist", waiting)
    assert somewhere(tensors) == [False, True, False, True]
    assert waits == [1]


def test_without() -> None:
    x = torch.tensor([1.0, math.inf], dtype=torch.float64)
    assert without(torch.tensor([False]), x) is x
    assert without(torch.tensor([False, True]), x).tolist() == [1.0, 0.0]


def _bounds(text: str, form: Form, *, finite: bool = False) -> dict[str, OutputBound]:
    case = parse_case(text)
    inputs, _ = inputs_of(materialize(case)[0])
    truth = Truth(inputs, case.dtype, form, finite=finite)
    forward_pairs = truth.forward()
    o, lse = forward_pairs["o"][0].float(), forward_pairs["lse"][0].float()
    given, strict = truth.given(o, lse)
    every = {
        "": forward_pairs,
        "strict ": truth.strict(),
        "whole ": truth.backward(),
        "given ": given,
        "given strict ": strict,
    }
    return {mode + name: bound for mode, pairs in every.items() for name, (_, bound) in pairs.items()}


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "form", [Form(block_n=16), Form(architecture="sm_90", masked_ds=True), Form(scale_ds="operand")]
)
@pytest.mark.parametrize("text", CASES)
def test_answers_change_no_bound(text: str, form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _bounds(text, form)
    for module in (accumulators, backward, forward, gradients, known_absent, overflow, prepare, result):
        for name in ("nowhere", "below"):
            monkeypatch.setattr(module, name, lambda *_: False, raising=False)
    never = _bounds(text, form)
    assert asked.keys() == never.keys()
    for name, bound in asked.items():
        for field in dataclasses.fields(bound):
            one, other = getattr(bound, field.name), getattr(never[name], field.name)
            assert torch.equal(one, other), (name, field.name)


@pytest.mark.parametrize(("text", "calm"), [(CASES[0], True), (CASES[4], True), (CASES[6], False)])
def test_an_overflow_domain_that_is_far_away_is_asked_for_no_mask(
    text: str, calm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, nothing = [], overflow._nowhere
    monkeypatch.setattr(overflow, "_nowhere", lambda *given, **more: found.append(1) or nothing(*given, **more))
    _bounds(text, Form(masked_ds=True))
    assert bool(found) == calm


ENDS = {
    "p": {"limit_p": 0.4},
    "ds": {"limit_s": 2.9},
    "dq": {"acc_q": 2 * 3 * 3.0 * 5.0},
    "dk": {"acc_k": 2 * 2 * 3.0 * 7.0},
    "dv": {"acc_v": 2 * 2 * 0.5 * 11.0},
    "operand": {"operand": OVERFLOW_FP32 / 7.0},
    "sum of weights": {"delta_weights": True},
    "dS before a softcap": {"wide": OVERFLOW_FP32},
    "v": {"bad_v": torch.ones(1, 2, 4, dtype=torch.bool)},
}


@pytest.mark.parametrize("end", [{}, *ENDS.values()], ids=["none", *ENDS])
def test_every_end_of_a_range_is_far_away(end: dict[str, Any]) -> None:
    def full(size: float, *shape: int) -> torch.Tensor:
        return torch.full(shape, size, dtype=torch.float64)

    given: dict[str, Any] = {"limit_p": 1e4, "limit_s": 1e4, "acc_q": 1e4, "acc_k": 1e4, "acc_v": 1e4} | end
    ds = full(3.0, 1, 2, 3)
    c = SimpleNamespace(**({"operand": 0.0, "delta_weights": False} | given))
    chunk = SimpleNamespace(bad_v=end.get("bad_v"), factor=1.0, ak=full(5.0, 1, 3, 4), aq=full(7.0, 1, 2, 4))
    g = SimpleNamespace(empty_ado=None, ado=full(11.0, 1, 2, 4))
    cores = SimpleNamespace(Pb=full(0.5, 1, 2, 3), ds_max=ds, ds_wide=full(end["wide"], 1) if "wide" in end else ds)
    far: Any = overflow._far_below
    assert far(c, chunk, g, cores, given["limit_p"], given["limit_s"]) == (not end)


def test_a_flushed_element_beside_a_normal_one() -> None:
    x = torch.tensor([[1.0, 2.0**-130, 0.0]], dtype=torch.float64)
    part = flushable_part(x, "bf16", Form())
    assert part is not None
    assert part.tolist() == [[0.0, 2.0**-130, 0.0]]
    assert flushable_part(x[:, :1], "bf16", Form()) is None


def test_forward_and_backward_keep_their_own_logit_errors() -> None:
    inputs, _ = inputs_of(materialize(parse_case(CASES[0]))[0])
    problem = Truth(inputs, "bf16", Form(max_source="apart")).problem
    c, chunk = problem.coefficients(), next(problem.chunks())
    found = {}
    for backward_too in (False, True, False):
        theta, *_ = logit_error(c, chunk, "none", backward=backward_too)
        assert torch.equal(theta, found.setdefault(backward_too, theta.clone()))
        theta.zero_()
    assert not torch.equal(found[False], found[True])


@pytest.mark.parametrize("text", CASES)
def test_what_is_known_to_be_finite_has_the_same_bounds(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _bounds(text, Form())
    monkeypatch.setattr(prepare, "_remove_non_finite", None)
    known = _bounds(text, Form(), finite=True)
    for name, bound in asked.items():
        for field in dataclasses.fields(bound):
            assert torch.equal(getattr(bound, field.name), getattr(known[name], field.name)), (name, field.name)


def test_what_flushing_takes_of_the_operands_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, plain = [], flushing.vanishing_products

    def counted(operands: Sequence[torch.Tensor], factor: float) -> list[torch.Tensor | None]:
        asked.append(len(operands))
        return plain(operands, factor)

    monkeypatch.setattr(flushing, "vanishing_products", counted)
    _bounds(CASES[0], Form(scale_ds="operand"))
    assert asked == [2]
