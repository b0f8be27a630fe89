"""Subjects that compute nothing, and subjects that do without one of their inputs, are found within a batch of drawn cases."""

import dataclasses
from functools import cache

import pytest
import torch

from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.campaign.worker.search import draw
from flashverify.case.case import Logits
from flashverify.subjects import Forward, Gradients, load_subject
from tests.fast_tier import fast_one_in

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("interpreter")]

CASES = 300


@cache
def drawn():
    cases = draw(toolkit.strategy(load_subject("bundled"), "cpu"), CASES, 3)
    return sorted(cases, key=lambda case: case.batch * case.heads_q * case.seq_q * case.seq_k)  # the quickest first


class Around:
    """The bundled kernels with changed inputs or outputs."""

    def __init__(self, change=lambda problem: problem, forward=lambda p, r: r, backward=lambda p, r: r):
        self.inner = load_subject("bundled")
        self.name, self.supports, self.contract = "around", self.inner.supports, self.inner.contract
        self.change, self.after_forward, self.after_backward = change, forward, backward

    def form(self, case):
        return self.inner.form(case)

    def device(self):
        return "cpu"

    def evidence(self):
        return "interpreter"

    def forward(self, problem):
        return self.after_forward(problem, self.inner.forward(self.change(problem)))

    def backward(self, problem, forward):
        return self.after_backward(problem, self.inner.backward(self.change(problem), forward))


def found(subject, concerns=lambda case: True):
    cases = [case for case in drawn() if concerns(case)]
    assert cases
    return any(toolkit.judge(subject, case, "fuzz").failures for case in cases)


def each(forward, change):
    o = change("o", forward.o)
    return Forward(o, change("lse", forward.lse), forward.saved)


def every(gradients, change):
    named = {f.name: getattr(gradients, f.name) for f in dataclasses.fields(gradients)}
    return Gradients(**{name: None if x is None else change(name, x) for name, x in named.items()})


def test_the_subject_that_is_changed_passes():
    assert not any(toolkit.judge(Around(), case, "fuzz").failures for case in drawn()[:: CASES // 3])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("value", fast_one_in(1, [0.0, 1.0, -0.25], kept=3))
@pytest.mark.parametrize("output", ["o", "lse", "delta", "dq", "dk", "dv", "dbias", "dsink", "drelative_bias"])
def test_an_output_that_is_a_constant_is_found(output, value):
    def change(name, x):
        return torch.full_like(x, value) if name == output else x

    subject = Around(forward=lambda _, r: each(r, change), backward=lambda _, r: every(r, change))
    assert found(subject, lambda case: returns(case, output))


def returns(case, output):
    if output in ("o", "lse"):
        return True
    logits = case.logits
    given = {"dbias": logits.bias, "dsink": logits.sink, "drelative_bias": logits.relative_bias}
    return case.grad.backward and given.get(output, True)


@pytest.mark.parametrize(
    ("output", "source"),
    fast_one_in(
        1,
        (
            pytest.param(*x)
            for x in [("o", "q"), ("o", "v"), ("dv", "do"), ("dq", "q"), ("dk", "k"), ("dv", "v"), ("dq", "do")]
        ),
        kept=3,
    ),
)
def test_an_output_that_is_a_copy_of_an_input_is_found(output, source):
    problems = []

    def change(name, x):
        given = getattr(problems[-1], source)
        return given.clone() if name == output and given.shape == x.shape else x

    def forward(problem, result):
        problems.append(problem)
        return each(result, change)

    assert found(Around(forward=forward, backward=lambda _, r: every(r, change)), lambda case: case.grad.backward)


def test_outputs_of_the_call_before_are_found():
    before = {}

    def change(name, x):
        held = before.setdefault((name, tuple(x.shape)), x.clone())
        before[name, tuple(x.shape)] = x.clone()
        return held

    assert found(Around(forward=lambda _, r: each(r, change)))
    assert found(Around(backward=lambda _, r: every(r, change)))


def with_case(problem, **changes):
    return dataclasses.replace(problem, case=dataclasses.replace(problem.case, **changes))


def without_mask(problem, part, **tensors):
    mask = dataclasses.replace(problem.case.mask, **{part: None})
    return dataclasses.replace(with_case(problem, mask=mask), **tensors)


def without_term(problem, part, value, **tensors):
    logits = dataclasses.replace(problem.case.logits, **{part: value})
    return dataclasses.replace(with_case(problem, logits=logits), **tensors)


def filled(name, value):
    def change(problem):
        given = getattr(problem, name)
        return problem if given is None else dataclasses.replace(problem, **{name: torch.full_like(given, value)})

    return change


PLAIN = Logits()
IGNORED = {
    "q": (filled("q", 0), lambda case: True),
    "k": (filled("k", 0), lambda case: True),
    "v": (filled("v", 0), lambda case: True),
    "do": (filled("do", 1), lambda case: case.grad.backward),
    "dlse": (filled("dlse", 0), lambda case: case.grad.backward),
    "scale": (lambda p: with_case(p, scale=None), lambda case: case.scale is not None),
    "causal": (lambda p: without_mask(p, "causal"), lambda case: case.mask.causal),
    "window": (lambda p: without_mask(p, "window"), lambda case: case.mask.window),
    "tree": (lambda p: without_mask(p, "tree"), lambda case: case.mask.tree),
    "key_lengths": (lambda p: without_mask(p, "key_lengths", key_lengths=None), lambda case: case.mask.key_lengths),
    "query_lengths": (
        lambda p: without_mask(p, "query_lengths", query_lengths=None),
        lambda case: case.mask.query_lengths,
    ),
    "bitmap": (filled("bitmap", 1), lambda case: case.mask.bitmap),
    "blocks": (filled("blocks", 1), lambda case: case.mask.blocks),
    "bias": (filled("bias", 0), lambda case: case.logits.bias),
    "slopes": (filled("slopes", 0), lambda case: case.logits.alibi),
    "sink": (filled("sink", 0), lambda case: case.logits.sink),
    "softcap": (lambda p: without_term(p, "softcap", PLAIN.softcap), lambda case: case.logits.softcap),
    "dropout": (lambda p: with_case(p, dropout=0.0), lambda case: case.dropout),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", fast_one_in(1, IGNORED, kept=3))
def test_an_input_that_is_ignored_is_found(name):
    change, concerns = IGNORED[name]

    assert found(Around(change), concerns)
