"""Wrong semantics of where the heads of a contiguous Q, K or V begin: by the size of another tensor, or by a length that is rounded up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics
from flashverify.diagnosis.mask_tensors import of_heads_open
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["HEAD_OFFSETS"]

_NAMES = (("k",), ("v",), ("k", "v"), ("q",))


def _steps(scene: Scene, name: str) -> Iterator[tuple[str, int]]:
    """Elements from one head to the next one, in words."""
    case = scene.case
    length, other = (case.seq_q, case.seq_k) if name == "q" else (case.seq_k, case.seq_q)
    dim, another = (case.dim_v, case.dim_qk) if name == "v" else (case.dim_qk, case.dim_v)
    yield f"as many channels as {'K' if name == 'v' else 'V'} has", length * another
    yield f"as many rows as {'K' if name == 'q' else 'Q'} has", other * dim
    for t in TILES:
        yield f"whole tiles of {t} rows", -(-length // t) * t * dim
    yield "one row less", max(length - 1, 0) * dim


def _read(x: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """`[B, H, S, D]` whose heads begin `step` apart in its memory, and the heads that leave that, bool `[B, H]`."""
    batch, heads, length, dim = x.shape
    first = torch.arange(batch * heads).view(batch, heads, 1) * step
    at = first + torch.arange(length * dim)
    lost = (at >= x.numel()).any(-1)
    return x.flatten()[at.clamp(max=max(x.numel() - 1, 0))].view(x.shape), lost


def _build(scene: Scene) -> Iterator[Alternative]:
    case = scene.case
    if case.mask.packed is not None or case.storage.page_size is not None or not case.seq_k or not case.seq_q:
        return
    if case.quantised is not None or case.batch * case.heads_q < 2:
        return
    for names in _NAMES:
        steps = [dict(_steps(scene, name)) for name in names]
        for words in dict.fromkeys(word for each in steps for word in each):
            if not all(words in each for each in steps):
                continue
            moved: dict[str, Any] = {}
            lost = torch.zeros(case.batch, case.heads_q, dtype=torch.bool)
            for name, each in zip(names, steps, strict=True):
                x = getattr(scene.inputs, name)
                moved[name], gone = _read(x, each[words])
                lost = lost | gone.repeat_interleave(case.heads_q // gone.shape[1], 1)
            if bool(lost.all()) or all(torch.equal(x, getattr(scene.inputs, name)) for name, x in moved.items()):
                continue
            detail = f"heads of {' and '.join(name.upper() for name in names)} as if they had {words}"
            yield Alternative(inputs=replace(scene.inputs, **moved), finish=of_heads_open(scene, lost), detail=detail)


HEAD_OFFSETS = (
    Semantics(
        name="heads-begin-elsewhere",
        sentence="the heads of a tensor begin in its memory where those of another size would",
        build=_build,
        outputs=FORWARD,
        one_way=True,
    ),
)
