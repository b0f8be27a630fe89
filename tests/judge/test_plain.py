"""Right outputs are counted without masks: the numbers are those of the census, and nothing else is let through."""

import dataclasses
import math

import pytest
import torch

from flashverify.judge import compare
from flashverify.judge.compare import compare_output
from flashverify.judge.plain import plain_comparison, within
from flashverify.numerics import OutputBound

SHAPE = (1, 2, 7, 5)


def _bound(size: float = 0.5) -> OutputBound:
    no = torch.zeros(SHAPE, dtype=torch.bool)
    full = torch.full(SHAPE, size, dtype=torch.float64)
    vague = no.clone()
    vague[..., 1] = True
    return OutputBound(
        bound=full, self_error=full * 1e-6, may_overflow=no, may_flip=no, must_overflow=no, uninformative=vague
    )


def _values() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    expected = torch.randn(SHAPE, dtype=torch.float64)
    return (expected + (torch.rand(SHAPE, dtype=torch.float64) - 0.5) * 0.9).float(), expected


@pytest.mark.parametrize("exact", [False, True])
def test_numbers_are_those_of_the_census(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    got, expected = _values()
    bound = _bound()
    if exact:
        got, expected = expected.float(), expected.float().double()
        bound.bound[..., 0], bound.self_error[..., 0] = 0.0, 0.0
    pinned = torch.zeros(1, 2, 7, 1, dtype=torch.bool)
    plain = compare_output("o", got, expected, bound, pinned=pinned)
    monkeypatch.setattr(compare, "plain_comparison", lambda *_: None)
    assert plain == compare_output("o", got, expected, bound, pinned=pinned)


def test_only_right_outputs_are_plain() -> None:
    got, expected = _values()
    x, bound = got.double(), _bound()
    assert plain_comparison(x, expected, bound, None) is not None
    assert within(x, expected, bound)
    for value in (2.0 + float(expected[0, 1, 2, 3]), math.nan, math.inf):
        wrong = x.clone()
        wrong[0, 1, 2, 3] = value
        assert plain_comparison(wrong, expected, bound, None) is None
        assert not within(wrong, expected, bound)
        assert compare_output("o", wrong, expected, bound).verdicts
    mask = torch.zeros(SHAPE, dtype=torch.bool)
    mask[0, 0, 0, 0] = True
    assert plain_comparison(x, expected, bound, mask) is None
    open_element = _bound()
    open_element.bound[0, 0, 0, 0] = math.inf
    assert plain_comparison(x, expected, open_element, None) is None
    assert within(x, expected, open_element)


@pytest.mark.parametrize("field", ["may_overflow", "must_overflow"])
def test_an_overflow_is_not_plain(field: str) -> None:
    got, expected = _values()
    bound = dataclasses.replace(_bound(), **{field: (torch.arange(5) == 2).expand(SHAPE)})
    assert plain_comparison(got.double(), expected, bound, None) is None
    assert within(got.double(), expected, bound) == (field == "may_overflow")
