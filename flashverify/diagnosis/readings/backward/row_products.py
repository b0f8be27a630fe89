"""What delta may be made of in place of rowsum(dO * O): products of other vectors of the row, other sums of these, sums over the keys."""

from __future__ import annotations

from functools import partial
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.backward.variants import Option, RowTerms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene

    _OfRow = Callable[[Scene, Steps], Tensor | None]

__all__ = ["other_deltas"]

_DECLARED = ("dO", "O")


def other_deltas(scene: Scene) -> Iterator[Option]:
    """Variants of delta, `[B, Hq, Sq]` each."""
    for words, value in _values(scene):
        yield Option(f"delta is {words}", partial(_delta, value))


def _delta(value: _OfRow, scene: Scene, s: Steps) -> RowTerms | None:
    found = value(scene, s)
    return None if found is None else RowTerms(found.nan_to_num(0.0, 0.0, 0.0) * s.some, s.dlse)


def _values(scene: Scene) -> Iterator[tuple[str, _OfRow]]:
    for one, other in combinations_with_replacement(_VECTORS, 2):
        if {one, other} != set(_DECLARED):
            yield f"rowsum({one} * {other})", partial(_product, one, other)
    for name in _VECTORS:
        yield f"rowsum({name})", partial(_sum, name)
    for words, change in _SUMS:
        yield words, partial(_of_products, change)
    for words, of in _BOTH:
        yield words, partial(_of_steps, of)
    for words, order in _ORDERS:
        yield f"made of dO and of O with its channels {words}", partial(_ordered, order)
    for words, of_keys in _OF_KEYS:
        yield words, partial(_where_keys_are, of_keys)
    if scene.case.dropout:
        for words, of_draws in _OF_DRAWS:
            yield words, partial(_with_dropout, of_draws)


_VECTORS: dict[str, Callable[[Steps], Tensor]] = {"O": lambda s: s.o, "dO": lambda s: s.do, "Q": lambda s: s.q}


def _of_products(change: Callable[[Tensor], Tensor], _scene: Scene, s: Steps) -> Tensor:
    return change(s.do * s.o)


def _of_steps(of: Callable[[Steps], Tensor], _scene: Scene, s: Steps) -> Tensor:
    return of(s)


def _where_keys_are(of: Callable[[Steps], Tensor], _scene: Scene, s: Steps) -> Tensor | None:
    return of(s) if s.p.shape[3] else None


def _with_dropout(of: Callable[[Steps], Tensor], scene: Scene, s: Steps) -> Tensor | None:
    return of(s) if scene.case.dropout else None


def _product(one: str, other: str, _scene: Scene, s: Steps) -> Tensor | None:
    a, b = _VECTORS[one](s), _VECTORS[other](s)
    return (a * b).sum(-1) if a.shape == b.shape else None


def _sum(name: str, _scene: Scene, s: Steps) -> Tensor:
    return _VECTORS[name](s).sum(-1)


def _ordered(order: Callable[[int], Tensor | None], _scene: Scene, s: Steps) -> Tensor | None:
    channels = order(s.o.shape[3])
    return None if channels is None else (s.do * s.o[..., channels]).sum(-1)


_SUMS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("the largest of the products dO * O of the channels, not their sum", lambda x: x.amax(-1)),
    ("the sum of the magnitudes of dO * O", lambda x: x.abs().sum(-1)),
    ("the magnitude of rowsum(dO * O)", lambda x: x.sum(-1).abs()),
    ("the square of rowsum(dO * O)", lambda x: x.sum(-1) ** 2),
    ("the product dO * O of the first channel alone", lambda x: x[..., 0]),
    ("the product dO * O of the last channel alone", lambda x: x[..., -1]),
    ("rowsum(dO * O) of the channels with even numbers alone", lambda x: x[..., ::2].sum(-1)),
    ("rowsum(dO * O) of the channels with odd numbers alone", lambda x: x[..., 1::2].sum(-1)),
    ("rowsum(dO * O) of the first half of the channels", lambda x: x[..., : x.shape[-1] // 2].sum(-1)),
    ("rowsum(dO * O) of the second half of the channels", lambda x: x[..., x.shape[-1] // 2 :].sum(-1)),
    ("rowsum(dO * O) without the last channel", lambda x: x[..., :-1].sum(-1)),
)


def _row_sum(s: Steps) -> Tensor:
    """The sum of exp(S - the largest S), the sink's share in it."""
    return (s.lse - s.z.amax(-1).masked_fill(~s.some, 0.0)).exp() if s.z.shape[3] else torch.ones_like(s.lse)


_BOTH: tuple[tuple[str, Callable[[Steps], Tensor]], ...] = (
    ("rowsum(dO) times rowsum(O)", lambda s: s.do.sum(-1) * s.o.sum(-1)),
    ("rowsum(dO * O) with an O that is not divided by its row sum", lambda s: s.delta * _row_sum(s)),
    ("rowsum(dO * O) divided by the row sum once more", lambda s: s.delta / _row_sum(s)),
    ("rowsum(dO * O) times exp(LSE)", lambda s: s.delta * s.lse.exp()),
    ("the LSE", lambda s: s.lse),
    ("rowsum(dO * O) times the LSE", lambda s: s.delta * s.lse),
    ("rowsum(dO * O) plus the LSE", lambda s: s.delta + s.lse),
    ("rowsum(dO * O) minus the LSE", lambda s: s.delta - s.lse),
)
_ORDERS: tuple[tuple[str, Callable[[int], Tensor | None]], ...] = (
    ("in reverse", lambda n: torch.arange(n).flip(0)),
    ("one further", lambda n: (torch.arange(n) + 1) % n),
    ("one before", lambda n: (torch.arange(n) - 1) % n),
    ("in exchanged halves", lambda n: (torch.arange(n) + n // 2) % n if n % 2 == 0 else None),
    ("exchanged in pairs", lambda n: torch.arange(n) ^ 1 if n % 2 == 0 else None),
    ("of the first half twice", lambda n: torch.arange(n) % (n // 2) if n > 1 else None),
)
_OF_KEYS: tuple[tuple[str, Callable[[Steps], Tensor]], ...] = (
    ("the sum of dP over the keys that the row sees, without P", lambda s: (s.dp * s.see).sum(-1)),
    ("the mean of dP over the keys that the row sees", lambda s: (s.dp * s.see).sum(-1) / s.see.sum(-1).clamp(min=1)),
    ("the largest dP of the keys that the row sees", lambda s: s.dp.masked_fill(~s.see, -torch.inf).amax(-1)),
    ("the largest P dP of the keys that the row sees", lambda s: (s.p * s.dp).masked_fill(~s.see, -torch.inf).amax(-1)),
    ("the sum of P^2 dP over the keys", lambda s: (s.p**2 * s.dp).sum(-1)),
    ("the sum of dP over all keys, hidden ones too", lambda s: s.dp.sum(-1)),
    ("the sum of P |dP| over the keys", lambda s: (s.p * s.dp.abs()).sum(-1)),
    ("P dP of the first key alone", lambda s: (s.p * s.dp)[..., 0]),
)
_OF_DRAWS: tuple[tuple[str, Callable[[Steps], Tensor]], ...] = (
    ("the sum of P dP with dropout in both P and dP", lambda s: (s.p * s.kept * s.dp).sum(-1)),
)
