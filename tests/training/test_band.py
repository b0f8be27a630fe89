"""The bands are what the worst signs of all errors do, to first order; the twin is the oracle's attention."""

import pytest
import torch

from flashverify.case.memory.materialize import materialize
from flashverify.training.attention import ErrorVariables, Exact
from flashverify.training.band import Lesson, band, loss_bands, twin_graph
from flashverify.training.batches import CHARACTERS, batch_of
from flashverify.training.layers import case_of
from flashverify.training.model import initial, loss_of
from flashverify.training.settings import Settings
from flashverify.training.trainings import Training
from flashverify.truth import float64_values, inputs_of
from tests.training.planted import RIGHT

SETTINGS = Settings(subject="", device="cpu", length=6, heads=1, dim=8, layers=1, dropout=0.3)
NAMES = ("q", "k", "v", "dq", "dk", "dv", "o", "do")
SIZE = 1e-6


def inputs():
    return [inputs_of(materialize(case_of(RIGHT, SETTINGS), "cpu")[0])[0].dense()]


def lesson(step, size=SIZE):
    bound = torch.full((SETTINGS.batch, SETTINGS.heads, SETTINGS.length, SETTINGS.dim), size, dtype=torch.float64)
    return Lesson(batch_of(SETTINGS, step), inputs(), [dict.fromkeys(NAMES, bound)])


def start():
    return initial(SETTINGS, len(CHARACTERS))


def square_of_a_gradient(given=()):
    """|dL/dwk|^2 of the first step, which every error enters but that of dq and of dv."""
    leaves = [w.requires_grad_() for w in start()]
    loss = loss_of(leaves, lesson(0).tokens, ErrorVariables(Exact(inputs()), given), SETTINGS.heads)
    return torch.autograd.grad(loss, leaves[4])[0].square().sum()


def test_the_worst_signs_of_all_errors_reach_the_band_of_a_gradient():
    leaves = [w.requires_grad_() for w in start()]
    _, gradients, errors, bounds = twin_graph(leaves, lesson(0), SETTINGS.heads)
    number = gradients[4].square().sum()
    slopes = torch.autograd.grad(number, errors, allow_unused=True, retain_graph=True)
    order = ("q", "k", "v", "dq", "dk", "dv", "o", "do")
    worst = {name: SIZE * slope.sign() for name, slope in zip(order, slopes, strict=True) if slope is not None}
    wide = band(number, errors, bounds)

    assert all(bool(worst[name].any()) for name in ("q", "k", "v", "dk", "o", "do"))
    assert float(square_of_a_gradient([worst]) - square_of_a_gradient()) == pytest.approx(wide, rel=1e-3)


def test_an_error_of_the_first_step_is_in_the_band_of_the_second():
    exact, off = (Training(start(), SETTINGS, rounded=False) for _ in range(2))
    first, second = lesson(0), lesson(1, size=0.0)
    exact.step(first.tokens, Exact(inputs()))
    off.step(first.tokens, ErrorVariables(Exact(inputs()), [{"dk": first.bounds[0]["dk"]}]))
    distance = abs(off.step(second.tokens, Exact(inputs()))[0] - exact.step(second.tokens, Exact(inputs()))[0])
    only = [{name: bound if name == "dk" else bound * 0 for name, bound in first.bounds[0].items()}]
    weights = loss_bands(start(), [lesson(0, size=0.0), second], SETTINGS)[1]
    wide = loss_bands(start(), [Lesson(first.tokens, first.inputs, only), second], SETTINGS)[1] - weights

    assert weights > 0
    assert 1e-9 < distance <= wide < 100 * distance


def test_an_element_without_a_bound_leaves_the_band_open():
    leaves = [w.requires_grad_() for w in start()]
    loss, _, errors, bounds = twin_graph(leaves, lesson(0, size=torch.inf), SETTINGS.heads)

    assert band(loss, errors, bounds) == torch.inf


def test_the_twin_computes_what_the_oracle_says_with_dropout():
    problem, _arena = materialize(case_of(RIGHT, SETTINGS), "cpu")
    given = [inputs_of(problem)[0].dense()]
    q, k, v = (x.double().requires_grad_() for x in (problem.q, problem.k, problem.v))
    o = Exact(given)(0, q, k, v)
    found = {
        "o": o,
        **dict(zip(("dq", "dk", "dv"), torch.autograd.grad(o, (q, k, v), problem.do.double()), strict=True)),
    }
    truth = float64_values(given[0])

    assert not bool(given[0].keep.all())
    for name, value in found.items():
        torch.testing.assert_close(value, truth[name], rtol=1e-12, atol=1e-12)
