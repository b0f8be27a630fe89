"""The hull of V over the keys that one row sees (docs/bounds.md, section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.numerics.chunk import Chunk

__all__ = ["hull_of_rows"]


def hull_of_rows(chunk: Chunk, o: Tensor, shared: Tensor, wide: Tensor) -> Tensor:
    """The largest |V - O| that the keys of a row allow, `[G, M, Dv]`.

    Args:
        chunk: The chunk.
        o: O, `[G, M, Dv]`.
        shared: The same over the keys that any row of the kv head sees, `[G, M, Dv]`.
        wide: bool `[G, M, 1]`, rows whose weights are known so badly that the hull may be their bound; the others keep `shared`.
    """
    if chunk.vis is None or not bool(wide.any()):
        return shared
    top, low = _range_of_rows(chunk)
    return torch.where(wide, torch.minimum(torch.maximum(top - o, o - low).clamp_(min=0.0), shared), shared)


def _range_of_rows(chunk: Chunk) -> tuple[Tensor, Tensor]:
    """Largest and smallest V from the first to the last key that each row sees, `[G, M, Dv]`, as `Chunk.top` and `Chunk.low`.

    Two runs of a power of two of keys cover the keys of a row.
    """
    known = chunk.cache.get("range of rows")
    if isinstance(known, tuple):
        return known
    assert chunk.vis is not None
    N = chunk.vis.shape[-1]
    first = chunk.vis.argmax(-1)
    last = N - 1 - chunk.vis.flip(-1).argmax(-1)
    span = (last - first + 1).masked_fill_(chunk.empty.squeeze(-1), 0)
    shape = (*first.shape, chunk.v.shape[-1])
    top, low = chunk.v.new_full(shape, -torch.inf), chunk.v.new_full(shape, torch.inf)
    runs_top = runs_low = chunk.v
    width = 1
    while True:
        here = (span >= width) & (span < 2 * width)
        if bool(here.any()):
            group, row = here.nonzero(as_tuple=True)
            begin, end = first[here], last[here] - width + 1
            top[group, row] = torch.maximum(runs_top[group, begin], runs_top[group, end])
            low[group, row] = torch.minimum(runs_low[group, begin], runs_low[group, end])
        if 2 * width > N:
            break
        runs_top = torch.maximum(runs_top[:, :-width], runs_top[:, width:])
        runs_low = torch.minimum(runs_low[:, :-width], runs_low[:, width:])
        width *= 2
    if chunk.sink is not None or chunk.kept is not None:
        top, low = (top * chunk.factor).clamp_(min=0.0), (low * chunk.factor).clamp_(max=0.0)
    chunk.cache["range of rows"] = top, low
    return top, low
