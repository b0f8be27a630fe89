"""What a contract says of rows that see no key: the LSE is -inf, a number or the sink, or nothing is said of them."""

import dataclasses
import functools
import math

import pytest
import torch

from flashverify import Contract, Form, Supports, UsageError, judge_case, parse_case, subject
from flashverify.case.masks.predicate import visible
from flashverify.case.memory.materialize import materialize
from flashverify.checks.accuracy import judged_form
from flashverify.checks.confirm import confirm
from flashverify.outputs import FORWARD

SHAPE = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=9 seq_k=5 causal=bottom-right seed=4"
CASES = (
    f"{SHAPE} dtype=fp32 sink=yes dlse=yes",
    f"{SHAPE} sink=yes",
    f"{SHAPE} dtype=bf16",
    "fv1 batch=2 heads_q=2 heads_kv=2 seq_q=3 seq_k=0 dtype=fp32 sink=yes dlse=yes",
    f"{SHAPE} dtype=fp32 sink=yes dlse=yes edits=sink:1,0,0,0:0x1p20;sink:2,0,0,0:-0x1p-130",
)
GRADIENTS = frozenset({"dq", "dk", "dv", "dsink"})
SUM = Contract(gradients=GRADIENTS, empty_row_lse="sink")
SUPPORTS = Supports(masks=("causal",), logits=("sink",), dlse=True, empty=True)


def attention(p, empty_lse=None, empty_o=None):
    """An exact logsumexp over keys and sink; `empty_lse` and `empty_o` change what rows without keys return."""
    group = p.q.shape[1] // p.k.shape[1]
    q, k, v = (x.double() for x in (p.q, p.k.repeat_interleave(group, 1), p.v.repeat_interleave(group, 1)))
    logits = q @ k.mT * p.scale
    seen = visible(p.case)(slice(0, q.shape[2]), slice(0, k.shape[2])) if p.causal else torch.ones_like(logits).bool()
    logits = logits.masked_fill(~seen, -math.inf)
    if p.sink is not None:
        sink = p.sink.double().view(1, -1, 1, 1).expand(*logits.shape[:3], 1)
        logits = torch.cat([logits, sink], -1)
        v = torch.cat([v, v.new_zeros(*v.shape[:2], 1, v.shape[3])], 2)
    empty = ~seen.any(-1).expand(logits.shape[:3])
    if p.sink is None:
        logits = logits.masked_fill(empty.unsqueeze(-1), 0.0)
        weights = logits.softmax(-1).masked_fill(empty.unsqueeze(-1), 0.0)
        lse = logits.logsumexp(-1).masked_fill(empty, -math.inf)
    else:
        weights, lse = logits.softmax(-1), logits.logsumexp(-1)
    o = weights @ v
    if empty_lse is not None:
        lse = torch.where(empty, empty_lse, lse)
    if empty_o is not None:
        o = o.masked_fill(empty.unsqueeze(-1), empty_o)
    return o.to(p.q.dtype), lse.float()


def made(contract, **changes):
    function = lambda p: attention(p, **{name: change(p) for name, change in changes.items()})  # noqa: E731
    return subject(name="mine", supports=SUPPORTS, contract=contract, device="cpu")(function)


def failures(kernel, text, *checks):
    return {(v.error, v.output) for v in judge_case(kernel, parse_case(text), checks=checks or None).failures}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("base", "text"),
    [
        *(("e", text) for text in CASES),
        *(pytest.param("2", x, marks=pytest.mark.thorough if x != CASES[0] else []) for x in CASES),
    ],
)
def test_an_exact_logsumexp_passes_under_its_convention(text, base):
    def function(p):
        o, lse = attention(p)
        return o, lse if base == "e" else (lse.double() / math.log(2)).float()

    contract = dataclasses.replace(SUM, lse_base=base, gradients=GRADIENTS if base == "e" else frozenset())
    text = text if base == "e" else text.replace("dlse=yes", "") + " backward=no"
    kernel = subject(name="mine", supports=SUPPORTS, contract=contract, device="cpu")(function)

    assert failures(kernel, text) == set()


def test_the_bound_of_a_sink_alone_is_as_sharp_as_that_of_a_key():
    def off(p):
        return p.sink.double().view(1, -1, 1) * (1 + 2.0**-17)

    assert failures(made(SUM, empty_lse=off), CASES[0], "accuracy") == {("bound", "lse")}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (lambda p: torch.tensor(-math.inf).double(), {("inf", "lse"), ("bound", "dsink")}),
        (lambda p: p.sink.double().roll(1).view(1, -1, 1), {("bound", "lse"), ("bound", "dsink")}),
    ],
)
def test_another_lse_is_wrong_under_the_convention(changed, expected):
    assert failures(made(SUM, empty_lse=changed), CASES[0], "accuracy", "nonfinite") == expected


def test_the_convention_is_wrong_where_it_is_not_declared():
    contract = dataclasses.replace(SUM, empty_row_lse=-math.inf)
    assert failures(made(contract), CASES[0], "accuracy") == {("empty-row", "lse"), ("bound", "dsink")}


def test_multi_precision_confirms_the_sink_and_its_gradient():
    kernel, case = made(SUM, empty_lse=lambda p: torch.tensor(3.0).double()), parse_case(CASES[0])
    found = {v.output: v for v in judge_case(kernel, case, checks=("accuracy",)).failures}
    sink = materialize(case)[0].sink
    confirmed = confirm(kernel, case, found["lse"])

    assert found.keys() == {"lse", "dsink"}
    assert confirmed.agrees is True
    assert float.fromhex(confirmed.expected) == sink[found["lse"].index[1]]
    assert confirm(kernel, case, found["dsink"]).agrees is True
    right = dataclasses.replace(kernel, function=attention)
    for verdict in found.values():
        assert confirm(right, case, verdict).agrees is False


def test_the_form_that_is_judged_has_the_convention():
    p = parse_case(CASES[0])
    assert judged_form(made(SUM), type("P", (), {"case": p})).empty_row_lse == "sink"
    assert judged_form(made(Contract()), type("P", (), {"case": p})).empty_row_lse == "none"


OPEN = Contract(empty_row_o=None, empty_row_lse=None, gradients=GRADIENTS)


@pytest.mark.parametrize("text", [f"{SHAPE} dtype=fp32", f"{SHAPE} backward=no"])
def test_rows_about_which_nothing_is_said_may_hold_anything(text):
    changes = {"empty_lse": lambda p: torch.tensor(7.0).double(), "empty_o": lambda p: 3.0}

    assert failures(made(OPEN, **changes), text) == set()
    assert failures(made(Contract(), **changes), text, "accuracy") >= {("empty-row", "o"), ("empty-row", "lse")}


def test_only_what_is_said_to_be_undefined_is():
    changes = {"empty_lse": lambda p: torch.tensor(7.0).double(), "empty_o": lambda p: 3.0}
    for name, contract in (("o", Contract(empty_row_lse=None)), ("lse", Contract(empty_row_o=None))):
        assert failures(made(contract, **changes), f"{SHAPE} backward=no", "accuracy") == {("empty-row", name)}


def test_other_rows_are_judged_all_the_same():
    kernel = made(OPEN)
    wrong = dataclasses.replace(kernel, function=lambda p: tuple(x * 1.01 for x in attention(p)))
    found = failures(wrong, f"{SHAPE} dtype=fp32 backward=no", "accuracy")

    assert found == {("bound", name) for name in FORWARD}


OVERFLOW = parse_case(
    "fv1 batch=1 seq_q=6 seq_k=4 dtype=fp32 causal=bottom-right edits=do:0,0,0,0:0x1p100;v:0,0,2,0:0x1p90"
)


def backward(p, found, masked=False, factor=1.0):
    """One tile in fp32: P of invisible pairs is 0, and dS is set to 0 there or is P (dP - delta)."""
    seen = visible(p.case)(slice(0, 6), slice(0, 4))
    s = (p.q @ p.k.mT) * p.scale
    weights = torch.where(seen, torch.exp(s - found.lse.unsqueeze(-1)), 0.0)
    ds = weights * (p.do @ p.v.mT - (p.do * found.o).sum(-1, keepdim=True))
    ds = torch.where(seen, ds, 0.0) if masked else ds
    return ds @ p.k * p.scale, ds.mT @ p.q * p.scale * factor, weights.mT @ p.do


@pytest.mark.parametrize(
    ("form", "options", "expected"),
    [
        (Form(), {}, set()),
        (Form(), {"masked": True}, set()),
        (Form(masked_ds=True), {"masked": True}, set()),
        (Form(masked_ds=True), {}, {("nan", "dk"), ("empty-row", "dq")}),
        (Form(), {"factor": 1.01}, {("bound", "dk")}),
    ],
)
def test_an_overflow_of_a_row_without_keys_is_exempt_where_ds_is_not_masked(form, options, expected):
    function = functools.partial(backward, **options)
    contract = Contract(reads_outputs=True)
    kernel = subject(supports=SUPPORTS, contract=contract, form=form, device="cpu", backward=function)(attention)
    result = judge_case(kernel, OVERFLOW, checks=("accuracy", "nonfinite"))

    assert {(v.error, v.output) for v in result.failures} == expected


@pytest.mark.parametrize(
    ("field", "value", "accepted"),
    [("empty_row_lse", "Sink", "a number, 'sink', None"), ("empty_row_o", "sink", "a number, None")],
)
def test_an_unknown_value_is_refused(field, value, accepted):
    with pytest.raises(UsageError, match=rf"Contract\({field}='{value}'\) is not accepted: {accepted}"):
        Contract(**{field: value})
