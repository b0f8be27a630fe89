"""Gradients of which each head holds a sum, a mean or the value of other heads: of sinks, biases, tables, and of rows and keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.expected import Expected
from flashverify.diagnosis.hypothesis import Alternative
from flashverify.outputs import output as output_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.diagnosis.observation import Scene

    Mixture = Callable[[int, int], Tensor]

__all__ = ["HeadMixture", "head_mixtures"]

_NAMES = {"dq": "dQ", "dk": "dK", "dv": "dV"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeadMixture:
    """What each head holds of all.

    Attributes:
        output: with an axis of heads.
        how: in words, after `of a head holds`.
        mixture: `[heads, heads]` float64, of the number of heads and how many of them are a group.
    """

    output: str
    how: str
    mixture: Mixture

    def alternative(self, scene: Scene) -> Alternative | None:
        """What it expects of the output on a case; None where each head holds its own."""
        axis, heads, group = _heads(scene, self.output)
        if axis is None or heads < 2 or scene.inputs.do is None:
            return None
        mixture = self.mixture(heads, group)
        if torch.equal(mixture, torch.eye(heads, dtype=torch.float64)):
            return None

        def mixed(x: Tensor, by: Tensor) -> Tensor:
            moved = x.double().movedim(axis, -1)
            finite = torch.nan_to_num(moved, 0.0, 0.0, 0.0) @ by.T
            lost = (~torch.isfinite(moved)).double() @ (by != 0).double().T > 0
            return finite.masked_fill(lost, torch.inf).movedim(-1, axis)

        def finish(values: Expectations) -> Expectations:
            if self.output not in values:
                return values
            x = values[self.output]
            value, total = mixed(x.value, mixture), mixed(x.total, mixture.abs())
            bad = ~torch.isfinite(value)
            total = torch.where(bad, torch.inf, total + torch.finfo(torch.float32).eps * value.abs().nan_to_num(0.0))
            overflow = mixed(x.overflow.double(), mixture.abs()) > 0
            return values | {self.output: Expected(value=value.nan_to_num(0, 0, 0), total=total, overflow=overflow)}

        return Alternative(finish=finish)

    def words(self, _dlse: bool = False) -> str:
        """A sentence without its full stop."""
        return f"{_NAMES.get(self.output, self.output)} of a head is {self.how}"


def head_mixtures(scene: Scene, output: str) -> Iterator[HeadMixture]:
    """Those that give the output of a case."""
    axis, heads, _ = _heads(scene, output)
    if axis is None or heads < 2:
        return
    for how, mixture in _mixtures(of_keys="head_kv" in output_spec(output).axes):
        found = HeadMixture(output=output, how=how, mixture=mixture)
        alternative = found.alternative(scene)
        if alternative is not None and scene.agrees(alternative, frozenset({output})):
            yield found


def _heads(scene: Scene, output: str) -> tuple[int | None, int, int]:
    """Where the axis of heads stands, how many there are, and how many query heads a group has, 1 for kv heads."""
    if output not in scene.outputs:
        return None, 0, 1
    axes = output_spec(output).axes
    axis = next((number for number, name in enumerate(axes) if name in ("head_q", "head_kv")), None)
    if axis is None:
        return None, 0, 1
    heads = scene.outputs[output].shape[axis]
    whole = axes[axis] == "head_q" and heads == scene.case.heads_q
    return axis, heads, scene.group if whole else 1


def _mixtures(*, of_keys: bool) -> Iterator[tuple[str, Mixture]]:
    for how, other in (
        ("that of the next head", lambda h, heads, _g: (h + 1) % heads),
        ("that of the head before", lambda h, heads, _g: (h - 1) % heads),
        ("that of head h from the end", lambda h, heads, _g: heads - 1 - h),
        ("that of the first head", lambda h, _heads, _g: h * 0),
        ("that of the last head", lambda h, heads, _g: h * 0 + heads - 1),
    ):
        yield how, partial(_of, other)
    if not of_keys:
        for how, other in (
            ("that of the first head of its group", lambda h, _heads, g: h // g * g),
            ("that of the last head of its group", lambda h, _heads, g: h // g * g + g - 1),
            ("that of the next head of its group, in a ring", lambda h, _heads, g: h // g * g + (h + 1) % g),
            ("that of the head that has the number of its kv head", lambda h, _heads, g: h // g),
            ("that of head h % Hkv", lambda h, heads, g: h % (heads // g)),
            (
                "that of head (h % Hkv) * group + h // Hkv: heads are counted by member, then kv head",
                lambda h, heads, g: h % (heads // g) * g + h // (heads // g),
            ),
            (
                "that of head (h % group) * Hkv + h // group: heads are counted by kv head, then member",
                lambda h, heads, g: h % g * (heads // g) + h // g,
            ),
        ):
            yield how, partial(_of, other)
        yield "the sum over the query heads of its group", partial(_same, lambda h, _heads, g: h // g, mean=False)
        yield "the mean over the query heads of its group", partial(_same, lambda h, _heads, g: h // g, mean=True)
        yield (
            "the sum over the heads of the same number in all groups",
            partial(_same, lambda h, _heads, g: h % g, mean=False),
        )
        yield (
            "the mean over the heads of the same number in all groups",
            partial(_same, lambda h, _heads, g: h % g, mean=True),
        )
        yield "the sum over the query heads h with the same h % Hkv", partial(_same, _modulo, mean=False)
        yield "the sum over its group in the first head of a group, and 0 in the others", _gathered
        yield "0 but in the first head of a group", partial(_only, which=0)
        yield "0 but in the last head of a group", partial(_only, which=-1)
        yield (
            "the sum over the heads of its group up to it: nothing is cleared between them",
            partial(_running, of_group=True),
        )
    yield "the sum over all heads", partial(_same, lambda h, _heads, _g: h * 0, mean=False)
    yield "the mean over all heads", partial(_same, lambda h, _heads, _g: h * 0, mean=True)
    yield "the sum over all heads up to it: nothing is cleared between them", partial(_running, of_group=False)
    yield "the sum of its own and that of the head before", partial(_two, -1)
    yield "the sum of its own and that of the next head", partial(_two, 1)


def _modulo(h: Tensor, heads: int, group: int) -> Tensor:
    return h % (heads // group)


def _of(other: Callable[[Tensor, int, int], Tensor], heads: int, group: int) -> Tensor:
    return torch.eye(heads, dtype=torch.float64)[other(torch.arange(heads), heads, group)]


def _same(of: Callable[[Tensor, int, int], Tensor], heads: int, group: int, *, mean: bool) -> Tensor:
    number = of(torch.arange(heads), heads, group)
    found = (number[:, None] == number[None, :]).double()
    return found / found.sum(1, keepdim=True) if mean else found


def _only(heads: int, group: int, *, which: int) -> Tensor:
    return torch.diag((torch.arange(heads) % group == which % group).double())


def _gathered(heads: int, group: int) -> Tensor:
    h = torch.arange(heads)
    return ((h[:, None] % group == 0) & (h[:, None] // group == h[None, :] // group)).double()


def _running(heads: int, group: int, *, of_group: bool) -> Tensor:
    h = torch.arange(heads)
    found = h[None, :] <= h[:, None]
    return (found & (h[None, :] // group == h[:, None] // group) if of_group else found).double()


def _two(step: int, heads: int, _group: int) -> Tensor:
    h = torch.arange(heads)
    there = (h + step >= 0) & (h + step < heads)
    return torch.eye(heads, dtype=torch.float64) + torch.where(
        there[:, None], torch.eye(heads, dtype=torch.float64)[(h + step) % heads], 0.0
    )
