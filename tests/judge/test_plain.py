"""Right outputs are counted without masks: the numbers are those of the census, and nothing else is let through."""

import dataclasses
import math
from typing import Any

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
    monkeypatch.setattr(compare, "plain_comparison", lambda *_, **__: None)
    assert plain == compare_output("o", got, expected, bound, pinned=pinned)


LEFT_OUT = {
    "taint": {"taint": (torch.arange(7) == 3).view(7, 1)},
    "undefined": {"undefined": (torch.arange(7) > 4).view(7, 1)},
    "pinned": {"pinned": (torch.arange(7) == 2).view(7, 1), "pinned_value": -1.5},
    "pinned and undefined": {
        "pinned": (torch.arange(7) > 1).view(7, 1),
        "undefined": (torch.arange(7) != 2).view(7, 1),
    },
    "everything": {"taint": torch.ones(1, dtype=torch.bool)},
}


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("exempt", [False, True])
@pytest.mark.parametrize("masks", LEFT_OUT.values(), ids=LEFT_OUT)
def test_what_is_not_compared_is_counted_as_the_census_counts_it(
    masks: dict[str, Any], exempt: bool, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    got, expected = _values()
    bound = _bound()
    got[:, :, 2:5] = torch.tensor([masks.get("pinned_value", 0.0), math.nan, math.inf]).view(3, 1)
    expected[:, :, 2:5] = torch.nan_to_num(got[:, :, 2:5].double(), posinf=0.0)
    got = got.where(~torch.isnan(got) | ("taint" in masks), 0.0).where(~torch.isinf(got) | exempt, 0.0)
    if exempt:
        bound.bound[:, :, 4] = math.inf
    if layout == "bshd":
        got = got.transpose(1, 2).contiguous().transpose(1, 2)
    plain = plain_comparison(got.double(), expected, bound, **masks)
    assert plain is not None
    quick = compare_output("o", got, expected, bound, **masks)
    monkeypatch.setattr(compare, "plain_comparison", lambda *_, **__: None)
    assert quick == compare_output("o", got, expected, bound, **masks)


def test_only_right_outputs_are_plain() -> None:
    got, expected = _values()
    x, bound = got.double(), _bound()
    assert plain_comparison(x, expected, bound) is not None
    assert within(x, expected, bound)
    for value in (2.0 + float(expected[0, 1, 2, 3]), math.nan, math.inf):
        wrong = x.clone()
        wrong[0, 1, 2, 3] = value
        assert plain_comparison(wrong, expected, bound) is None
        assert not within(wrong, expected, bound)
        assert compare_output("o", wrong, expected, bound).verdicts
    mask = torch.zeros(SHAPE, dtype=torch.bool)
    mask[0, 0, 0, 0] = True
    assert plain_comparison(x, expected, bound, taint=mask) is not None
    assert plain_comparison(x, expected, bound, pinned=mask) is None
    assert plain_comparison(x, expected, bound, pinned=mask, pinned_value=float(x[0, 0, 0, 0])) is not None
    assert plain_comparison(x, expected, bound, pinned=mask, undefined=mask) is not None
    open_element = _bound()
    open_element.bound[0, 0, 0, 0] = math.inf
    found = plain_comparison(x, expected, open_element)
    assert found is not None
    assert found.exempt == 1
    assert within(x, expected, open_element)


@pytest.mark.parametrize("field", ["may_overflow", "must_overflow"])
def test_an_overflow_is_not_plain(field: str) -> None:
    got, expected = _values()
    bound = dataclasses.replace(_bound(), **{field: (torch.arange(5) == 2).expand(SHAPE)})
    assert plain_comparison(got.double(), expected, bound) is None
    assert within(got.double(), expected, bound) == (field == "may_overflow")
