"""Wrong semantics of the memory that a backward reads: a tensor by other strides than its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.hypotheses.step_builds import has_gradients
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.outputs import BACKWARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["BACKWARD_STRIDES"]

_NAMES = {"do": "dO", "dlse": "dLSE", "q": "Q", "k": "K", "v": "V"}


def _strides(x: Tensor) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Other strides than those of `x`, `[B, H, S, D]` or `[B, H, S]`, in words."""
    own, shape = x.stride(), x.shape
    yield "as if it were contiguous", torch.empty(shape, device="meta").stride()
    by_row = torch.empty((shape[0], shape[2], shape[1], *shape[3:]), device="meta").stride()
    yield "as if it were contiguous [B, S, H, ...]", (by_row[0], by_row[2], by_row[1], *by_row[3:])
    yield "as if its last axis were contiguous", (*own[:-1], 1)
    if len(own) == 4:
        yield "as if its rows stood next to each other", (*own[:2], shape[3] * max(own[3], 1), own[3])
        yield "with the strides of rows and channels exchanged", (*own[:2], own[3], own[2])
    yield "with the strides of heads and rows exchanged", (own[0], own[2], own[1], *own[3:])
    yield "with the strides of sequences and heads exchanged", (own[1], own[0], *own[2:])


def _read(scene: Scene, name: str, x: Tensor, strides: tuple[int, ...]) -> Tensor | None:
    """What stands there, float64, 0 in padding that is not finite; None where memory ends before, or holds no number elsewhere."""
    last = x.storage_offset() + sum((size - 1) * step for size, step in zip(x.shape, strides, strict=True))
    if not x.numel() or last >= x.untyped_storage().nbytes() // x.element_size():
        return None
    found, at = x.as_strided(x.shape, strides).double(), scene.at
    inside = (at.key < at.key_limit) if name in ("k", "v") else (at.row < at.rows)
    inside = inside.view(-1, 1, x.shape[2], *(1,) * (x.dim() - 3))
    found = torch.where(inside, found, 0.0)
    return found if bool(torch.isfinite(found).all()) else None


def _build(scene: Scene) -> Iterator[Alternative]:
    i = scene.inputs
    if not has_gradients(scene):
        return
    for name, words in _NAMES.items():
        x, mine = getattr(scene.problem, name), getattr(i, name)
        if x is None or mine is None or x.shape != mine.shape:
            continue
        seen: list[Tensor] = [mine.double()]
        for how, strides in _strides(x):
            dense = x.is_contiguous() and name not in ("do", "dlse")
            read = None if dense or strides == x.stride() else _read(scene, name, x, strides)
            if read is None or any(torch.equal(read, each) for each in seen):
                continue
            seen.append(read)
            changed: dict[str, Any] = {name: read}
            yield Alternative(inputs=replace(i, **changed), detail=f"{words} {how}")
            if name == "do" and scene.o is not None:  # with the delta of a kernel that read it rightly
                kept = scene.o.double().masked_fill(scene.truth.empty_rows.unsqueeze(-1), 0.0)
                shift = ((read - mine.double()) * kept).sum(-1)
                dlse = shift if i.dlse is None else i.dlse.double() + shift
                yield Alternative(inputs=replace(i, do=read, dlse=dlse), detail=f"{words} {how}")


BACKWARD_STRIDES = (
    Semantics(
        name="backward-strides",
        sentence="the backward reads a tensor by other strides than its own",
        build=_build,
        outputs=BACKWARD,
        one_way=True,
    ),
)
