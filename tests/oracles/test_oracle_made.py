"""The backward takes the problem that its forward made, of the same arguments alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from flashverify_oracles import Backward, backward, forward


def draw(*shape: int) -> Tensor:
    return torch.randn(1, *shape, generator=torch.Generator().manual_seed(sum(shape)))


Q, K, V, DO = draw(4, 5, 8), draw(2, 7, 8), draw(2, 7, 6), draw(4, 5, 6)
GIVEN: dict[str, Any] = {
    "scale": 0.25,
    "softcap": 2.0,
    "visible": torch.ones(5, 7).tril(2) > 0,
    "sink": draw(3)[0].repeat(2)[:4],
}


def equal(a: Backward, b: Backward) -> bool:
    pairs = [(getattr(a, name), getattr(b, name)) for name in ("delta", "dq", "dk", "dv", "dsink")]
    return all(torch.equal(x, y) for x, y in pairs)


def test_a_problem_that_is_taken_over_gives_the_same_bits() -> None:
    found = forward(Q, K, V, **GIVEN)
    assert found.made is not None
    anew = dataclasses.replace(found, made=None)
    assert equal(backward(Q, K, V, DO, **GIVEN, forward=found), backward(Q, K, V, DO, **GIVEN, forward=anew))


@pytest.mark.parametrize(
    "change",
    [
        {"q": Q + 1},
        {"k": K + 1},
        {"v": V + 1},
        {"scale": 0.5},
        {"softcap": 4.0},
        {"visible": torch.ones(5, 7).tril(0) > 0},
        {"sink": torch.zeros(4)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_other_arguments_are_taken_as_given(change: dict[str, Any]) -> None:
    found = forward(Q, K, V, **GIVEN)
    given = {"q": Q, "k": K, "v": V, "do": DO} | GIVEN | change
    anew = backward(**given, forward=dataclasses.replace(found, made=None))
    assert equal(backward(**given, forward=found), anew)
    assert not equal(anew, backward(Q, K, V, DO, **GIVEN, forward=found))


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_logits_of_a_single_tile_are_kept_for_every_backward(softcap: float | None) -> None:
    asked = []

    def visible(rows: slice, keys: slice) -> Tensor:
        asked.append((rows, keys))
        return GIVEN["visible"][rows, keys]

    given = GIVEN | {"softcap": softcap, "visible": visible}
    found = forward(Q, K, V, **given)
    anew = backward(Q, K, V, DO, **given, forward=dataclasses.replace(found, made=None))
    before = len(asked)
    for _ in range(2):
        assert equal(backward(Q, K, V, DO, **given, forward=found), anew)
    assert (len(asked) == before) == (softcap is None)
    small = forward(Q, K, V, **given, _tile=(2, 3))
    assert small.made is not None
    assert small.made.logits is None
