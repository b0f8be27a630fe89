"""Wrong semantics of operands in codes: scales, zero points and formats."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.code_reading import numbers_as, operand_codes
from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.code_reading import Reading
    from flashverify.diagnosis.observation import Scene

    Made = Iterator[tuple[str, tuple[Tensor, Tensor]]]

__all__ = ["QUANTISED", "read_as"]

_TOGETHER = (("k",), ("v",), ("q",), ("k", "v"), ("q", "k"), ("q", "k", "v"))
"""Operands that a kernel may read wrongly in the same way."""


def read_as(change: Callable[[Reading, Scene], Made]) -> Callable[[Scene], Iterator[Alternative]]:
    """Each operand in codes alone, and several of them, read in the ways that `change` yields: what tells it apart, values and scales."""

    def build(scene: Scene) -> Iterator[Alternative]:
        how = scene.case.quantised
        if how is None:
            return
        made = {name: dict(change(operand_codes(scene.problem, name), scene)) for name in how.operands}
        for names in _TOGETHER:
            if not set(names) <= set(made):
                continue
            for detail in made[names[0]]:
                if all(detail in made[name] for name in names):
                    yield from _with(scene, {name: made[name][detail] for name in names}, detail)

    return build


def _with(scene: Scene, read: dict[str, tuple[Tensor, Tensor]], detail: str) -> Iterator[Alternative]:
    """The problem with other values of some operands; nothing where none of them is another."""
    declared = {name: operand_codes(scene.problem, name).value()[0] for name in read}
    if any(torch.equal(value, declared[name]) for name, (value, _) in read.items()):
        return
    given: dict[str, Any] = {name: value for name, (value, _) in read.items()} | {
        f"{name}_scale": s for name, (_, s) in read.items()
    }
    *first, last = read
    of = f"of {', '.join(first)} and {last}" if first else f"of {last}"
    yield Alternative(inputs=replace(scene.inputs, **given), detail=f"{of}{detail and ', '}{detail}")


def _scaled(by: Callable[[Tensor], Tensor]) -> Callable[[Reading, Scene], Made]:
    def change(x: Reading, scene: Scene) -> Made:  # noqa: ARG001
        yield "", x.value(scale=by(x.scale))

    return change


def _swapped(scene: Scene) -> Iterator[Alternative]:
    """The scales of K and of V, which have one shape, for each other."""
    if scene.case.quantised is None:
        return
    k, v = (operand_codes(scene.problem, name) for name in ("k", "v"))
    for name, x, other in (("k", k, v), ("v", v, k)):
        for found in _with(scene, {name: x.value(scale=other.scale)}, ""):
            yield replace(found, detail=f"{'v' if name == 'k' else 'k'} on {name}")
    both = {"k": k.value(scale=v.scale), "v": v.value(scale=k.scale)}
    yield from (replace(found, detail="each on the other") for found in _with(scene, both, ""))


def _neighbour(x: Reading, scene: Scene) -> Made:  # noqa: ARG001
    at = torch.arange(x.codes.shape[2])
    for step, text in ((1, "behind"), (-1, "before")):
        yield f"of the group {text}", x.value(scale=x.of_groups(at // x.per + step))
        if x.per > 1:
            place = "key or row"
            yield f"by the {place} {text}", x.value(scale=x.of_groups(((at + step) // x.per).clamp(min=0)))
    if x.groups.shape[2] * x.per == len(at):  # the last key or row reads on
        yield "by the key or row behind, on into the next head", x.value(scale=_read_on(x, (at + 1) // x.per))


def _read_on(x: Reading, at: Tensor) -> Tensor:
    """The scales of the groups `at`, `[S]`, where those behind the last one of a head are read of the next head in memory; 0 behind all."""
    batch, heads, count = x.groups.shape
    flat = torch.cat([x.groups.flatten(), torch.zeros(count, dtype=torch.float64)])
    begin = torch.arange(batch * heads).view(batch, heads, 1) * count
    return flat[begin + at].unsqueeze(-1)


def _of_tile(x: Reading, scene: Scene) -> Made:
    at = torch.arange(x.codes.shape[2])
    if x.groups.shape[2] == 1:
        return
    yield "of the first of all", x.value(scale=x.of_groups(at * 0))
    for size in sorted({*TILES, scene.form.block_n or TILES[0]}):
        if x.per < size < len(at):
            yield f"of the first in each {size}", x.value(scale=x.of_groups(at // size * size // x.per))
            yield f"of {size} before", x.value(scale=x.of_groups(torch.where(at < size, at, at - size) // x.per))


def _of_place(x: Reading, scene: Scene) -> Made:
    """Scales looked up by what is no group of this format: a key's number, another size of groups."""
    at, count = torch.arange(x.codes.shape[2]), x.groups.shape[2]
    page = scene.case.storage.page_size
    if count == 1:
        return
    if page is not None and page < len(at):
        yield "by the place in the page", x.value(scale=x.of_groups(at % page // x.per))
    for size in (1, *TILES):
        if size != x.per:
            yield f"as if {size} shared one", x.value(scale=x.of_groups(at // size))


def _of_others(x: Reading, scene: Scene) -> Made:  # noqa: ARG001
    for axis, text in ((1, "head"), (0, "sequence")):
        if x.scale.shape[axis] > 1:
            yield f"of the first {text}", x.value(scale=x.scale.narrow(axis, 0, 1))
            yield f"of the next {text}", x.value(scale=x.scale.roll(-1, axis))
            yield f"of the {text} before", x.value(scale=x.scale.roll(1, axis))
        if x.shifted and x.zero.shape[axis] > 1:
            zero = x.zero.narrow(axis, 0, 1)
            yield f"the zero point that of the first {text}", x.value(zero=zero)
            if x.scale.shape[axis] > 1:
                yield (
                    f"the zero point too that of the first {text}",
                    x.value(scale=x.scale.narrow(axis, 0, 1), zero=zero),
                )


def _one_for_all(x: Reading, scene: Scene) -> Made:  # noqa: ARG001
    scale = torch.where(torch.isfinite(x.scale), x.scale, 0.0)
    if scale.numel():
        yield "the largest of a head", x.value(scale=scale.amax(2, keepdim=True))
        yield "the largest of all", x.value(scale=scale.amax())
        yield "the mean of a head", x.value(scale=scale.mean(2, keepdim=True))


def _rounded(x: Reading, scene: Scene) -> Made:  # noqa: ARG001
    for dtype, text in ((torch.float16, "fp16"), (torch.bfloat16, "bf16"), (torch.float8_e4m3fn, "e4m3")):
        yield f"to {text}", x.value(scale=x.scale.to(dtype).double())
    fraction, exponent = torch.frexp(x.scale)
    yield "down to a power of two", x.value(scale=torch.ldexp((fraction != 0) * 0.5, exponent))
    yield "up to a power of two", x.value(scale=torch.ldexp(torch.where(fraction > 0.5, 1.0, fraction), exponent))


def _zero_missing(x: Reading, scene: Scene) -> Made:  # noqa: ARG001
    yield "", x.value(zero=0.0)
    if x.shifted and x.name == "int4":
        yield "8 in its place", x.value(zero=8.0)


def _zero_wrong(x: Reading, scene: Scene) -> Made:  # noqa: ARG001
    if not x.shifted:
        return
    yield "added", x.value(zero=-x.zero)
    yield "of the first group", x.value(zero=x.zero[:, :, :1])
    scale = torch.where(x.scale > 0, x.scale, 1.0)
    yield "behind the scale: scale * code - zero", x.value(zero=x.zero / scale)
    yield "behind the scale: scale * code + zero", x.value(zero=-x.zero / scale)


def _wraps(x: Reading, scene: Scene) -> Made:  # noqa: ARG001
    if x.shifted:
        found = (x.numbers - x.zero).to(torch.int64)
        yield "as signed", x.value(numbers=(found + 128) % 256 - 128.0, zero=0.0)
        yield "as unsigned", x.value(numbers=(found % 256).double(), zero=0.0)


def _format(x: Reading, scene: Scene) -> Made:  # noqa: ARG001
    if x.name == "int4":
        return
    for name in ("e4m3", "e5m2", "int8"):
        if name != x.name:
            yield f"{x.name} as {name}", x.value(numbers=numbers_as(x.codes, name))
    if x.name == "int8":
        yield "int8 as uint8", x.value(numbers=x.codes.double())
    else:
        yield f"{x.name} as that of AMD, with one more in the bias", x.value(numbers=x.numbers / 2)
        yield f"{x.name} of AMD, with one more in the bias, for it", x.value(numbers=x.numbers * 2)


def _subnormal(x: Reading, scene: Scene) -> Made:  # noqa: ARG001
    mantissa = {"e4m3": 3, "e5m2": 2}.get(x.name)
    if mantissa is None:
        return
    small = (x.codes & 0x7F) < (1 << mantissa)
    yield "", x.value(numbers=torch.where(small, 0.0, x.numbers))


def _magnitude(x: Reading, scene: Scene) -> Made:  # noqa: ARG001
    yield "", x.value(numbers=x.numbers.abs())


QUANTISED = (
    Semantics(
        name="codes-scale-missing",
        sentence="the scale of the codes is missing",
        build=read_as(_scaled(torch.ones_like)),
    ),
    Semantics(
        name="codes-scale-twice",
        sentence="the scale of the codes is applied twice",
        build=read_as(_scaled(torch.square)),
    ),
    Semantics(
        name="codes-scale-inverted",
        sentence="the codes are divided by their scale",
        build=read_as(_scaled(lambda s: torch.where(s > 0, 1.0 / s, 0.0))),
    ),
    Semantics(name="codes-scale-swapped", sentence="codes have the scale of another tensor", build=_swapped),
    Semantics(
        name="codes-scale-of-neighbour", sentence="codes have the scale of a neighbour", build=read_as(_neighbour)
    ),
    Semantics(
        name="codes-scale-of-tile",
        sentence="one scale is read for a stretch of codes that have several",
        build=read_as(_of_tile),
    ),
    Semantics(name="codes-scale-of-place", sentence="scales are looked up at another place", build=read_as(_of_place)),
    Semantics(
        name="codes-scale-of-other-head",
        sentence="codes have the scale of another head or sequence",
        build=read_as(_of_others),
    ),
    Semantics(
        name="codes-scale-for-all", sentence="one scale counts for codes that have several", build=read_as(_one_for_all)
    ),
    Semantics(name="codes-scale-rounded", sentence="the scale of the codes is rounded", build=read_as(_rounded)),
    Semantics(
        name="codes-zero-missing", sentence="the zero point of the codes is missing", build=read_as(_zero_missing)
    ),
    Semantics(
        name="codes-zero-wrong", sentence="the zero point of the codes is used wrongly", build=read_as(_zero_wrong)
    ),
    Semantics(
        name="codes-zero-wraps", sentence="the zero point is subtracted in 8 bits, which wrap", build=read_as(_wraps)
    ),
    Semantics(name="codes-format", sentence="the codes are read in another format", build=read_as(_format)),
    Semantics(name="codes-subnormal", sentence="subnormal codes count as 0", build=read_as(_subnormal)),
    Semantics(name="codes-sign", sentence="the sign of the codes is lost", build=read_as(_magnitude)),
)
