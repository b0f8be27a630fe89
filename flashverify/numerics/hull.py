"""The hull of V over the keys that one row sees (docs/bounds.md, section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flashverify.numerics.chunk import Chunk

__all__ = ["hull_of_rows"]

_TABLE = 1 << 23
"""Elements of the runs of keys that are held at once."""


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
    vis, empty = chunk.vis, chunk.empty
    assert vis is not None
    G, _, N = vis.shape
    first = vis.argmax(-1)
    last = N - 1 - vis.flip(-1).argmax(-1)
    reach = (last - first).masked_fill_(empty.squeeze(-1), 0)
    longest = N if reach.is_cuda else int(reach.max()) + 1  # a GPU is not waited for
    power = torch.frexp(reach.double().add_(1)).exponent.long() - 1
    width = 1 << power
    group = torch.arange(G, device=vis.device).unsqueeze(-1)
    begin = G * (power * (N + 1) + 1 - width) + group * (N + 1 - width)  # runs of half that width and less stand before
    runs = torch.stack((begin + first, begin + last + 1 - width))
    parts = torch.split(chunk.v, max(1, _TABLE // max(1, G * N * N.bit_length())), -1)
    top, low = (
        torch.cat([_over_runs(larger, part, runs, longest) for part in parts], -1)
        for larger in (torch.maximum, torch.minimum)
    )
    top, low = top.masked_fill_(empty, -torch.inf), low.masked_fill_(empty, torch.inf)
    if chunk.sink is not None or chunk.kept is not None:
        top, low = (top * chunk.factor).clamp_(min=0.0), (low * chunk.factor).clamp_(max=0.0)
    chunk.cache["range of rows"] = top, low
    return top, low


def _over_runs(larger: Callable[[Tensor, Tensor], Tensor], v: Tensor, runs: Tensor, longest: int) -> Tensor:
    """`[G, M, C]`: the larger one, as `larger` has it, of two runs of keys of each row.

    Args:
        larger: Of two tensors.
        v: `[G, N, C]`.
        runs: `[2, G, M]` place of each run in the list of all: runs of one key, of two, of four, in each group by their first key.
        longest: No run is longer.
    """
    all_runs, width = [v], 1
    while 2 * width <= longest:
        shorter = all_runs[-1]
        all_runs.append(larger(shorter[:, :-width], shorter[:, width:]))
        width *= 2
    table = torch.cat([x.flatten(0, 1) for x in all_runs])
    one, other = table[runs]
    return larger(one, other)
