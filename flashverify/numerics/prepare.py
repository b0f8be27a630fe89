"""From the operands of some rows to a `Chunk`: what is visible, what is finite, the logits and the hull of V."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flashverify.numerics.chunk import MASKED, Chunk, finite_rows, logits_of
from flashverify.numerics.known_absent import nowhere, without

__all__ = ["Operands", "chunk_of", "visible_operands"]


@dataclass(slots=True, kw_only=True, eq=False)
class Operands:
    """Q, K and V of some rows, finite, and 0 where no visible pair reads them (docs/bounds.md, sections 0 and 19).

    Attributes:
        q, k, v: `[G, M, D]`, `[G, N, D]`, `[G, N, Dv]`.
        pairs: bool `[G, M, N]`, visible pairs, or None when all are; `vis` as 0/1.
        n: `[G, M, 1]` visible keys a row; `empty` where there are none.
        seen: bool `[G, N, 1]`, keys that a row sees, or None when all are.
        hidden_v: `[G, N, 1]` largest finite |V| of the keys that no row sees, 0 for the others, or None.
        bad: `[G, M, 1]` bool, rows whose logits see a non-finite input.
        bad_v: `[G, M, Dv]` bool or None, outputs that see a non-finite V.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    pairs: Tensor | None
    vis: Tensor | None
    n: Tensor
    empty: Tensor
    seen: Tensor | None
    hidden_v: Tensor | None
    bad: Tensor
    bad_v: Tensor | None


def visible_operands(q: Tensor, k: Tensor, v: Tensor, pairs: Tensor | None, *, finite: bool = False) -> Operands:
    """The operands of a chunk, from `[G, M, D]`, `[G, N, D]`, `[G, N, Dv]` and the visible pairs `[G, M, N]`, or None when all are; `finite` where nothing else is in them."""
    (G, M), N = q.shape[:2], k.shape[1]
    vis = hidden_v = seen = None
    if pairs is None:
        n = torch.full((G, M, 1), float(N), dtype=torch.float64, device=q.device)
    else:
        vis = pairs.double()
        n = vis.sum(-1, keepdim=True)
        seen = (pairs.any(-2) if pairs.is_cuda or not M else pairs.view(torch.uint8).amax(-2) > 0).unsqueeze(-1)
        if v.shape[-1]:
            unasked = seen if finite else seen | ~finite_rows(v)
            hidden_v = torch.where(unasked, 0.0, v.abs().amax(-1, keepdim=True))
        unseen = ~seen
        k, v, q = without(unseen, k), without(unseen, v), without(n == 0, q)
    empty = n == 0
    found = Operands(
        q=q, k=k, v=v, pairs=pairs, vis=vis, n=n, empty=empty, seen=seen, hidden_v=hidden_v, bad=torch.zeros_like(empty), bad_v=None
    )  # fmt: skip
    if not finite and not bool(torch.isfinite(q.sum() + k.sum() + v.sum())):
        _remove_non_finite(found)
    return found


def _remove_non_finite(x: Operands) -> None:
    """Notes what sees a non-finite operand and sets it to 0."""
    G, M = x.q.shape[:2]
    bad_k, nan_v = (~finite_rows(x.k)).double(), (~torch.isfinite(x.v)).double()
    reach_k = bad_k.sum(-2, keepdim=True) if x.vis is None else x.vis @ bad_k
    x.bad = (~finite_rows(x.q) | (reach_k > 0)) & ~x.empty
    x.bad_v = (nan_v.sum(-2, keepdim=True).expand(G, M, -1) if x.vis is None else x.vis @ nan_v) > 0
    x.q, x.k, x.v = (torch.where(torch.isfinite(y), y, 0.0) for y in (x.q, x.k, x.v))


def _hull(v: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
    """Largest and smallest V of the keys that a row sees, `[G, 1, Dv]`."""
    if v.shape[1] == 0:
        none = v.new_zeros(v.shape[0], 1, v.shape[-1])
        return none, none
    if seen is None or nowhere(~seen):
        return v.amax(-2, keepdim=True), v.amin(-2, keepdim=True)
    top, low = torch.where(seen, v, -torch.inf), torch.where(seen, v, torch.inf)
    return top.amax(-2, keepdim=True), low.amin(-2, keepdim=True)


def chunk_of(
    rows: slice,
    x: Operands,
    *,
    magnitude: Callable[[Tensor], Tensor],
    flushable: Callable[[Sequence[Tensor]], list[Tensor | None]],
    scale: float,
    softcap: float | None,
    biases: Sequence[Tensor],
    sink: Tensor | None,
    kept: Tensor | None,
    factor: float,
) -> Chunk:
    """The chunk of some rows (docs/bounds.md, section 3).

    Args:
        rows: The query rows.
        x: Their operands.
        magnitude: |x| as a matrix unit aligns it.
        flushable: What of each element of each operand may be flushed, or None.
        scale: Softmax scale.
        softcap: The softcap, or None.
        biases: `[G, M, N]` each.
        sink: `[G, M, 1]` the sink's logit, or None.
        kept: `[G, M, N]` pairs that dropout keeps as 0/1, or None without dropout.
        factor: `1 / (1 - p)` of dropout.
    """
    N, bad, hidden_v, parts = x.k.shape[1], x.bad, x.hidden_v, None
    aq, ak, av = magnitude(x.q), magnitude(x.k), magnitude(x.v)
    small_q, small_k, small_v = flushable((x.q, x.k, x.v))
    top, low = _hull(x.v, x.seen)
    A = aq @ ak.mT
    S = (x.q @ x.k.mT).mul_(scale)
    if softcap is not None or biases:
        S, parts, bad_bias = logits_of(S, softcap, biases, x.pairs)
        bad = bad | (bad_bias & ~x.empty)
    if sink is not None:
        bad = bad | (~torch.isfinite(sink) & ~x.empty)
        sink = torch.where(torch.isfinite(sink), sink, 0.0)
    if kept is not None:
        kept = kept if x.vis is None else kept * x.vis
        hidden_v = None if hidden_v is None else hidden_v * factor
    if sink is not None or kept is not None:
        top, low = (top * factor).clamp(min=0.0), (low * factor).clamp(max=0.0)
    if x.vis is not None and x.pairs is not None:
        A.mul_(x.vis)
        S.masked_fill_(~x.pairs, MASKED)
    m = S.amax(-1, keepdim=True) if N else torch.zeros_like(x.n)
    m = (m if sink is None else torch.maximum(m, sink)).masked_fill_(x.empty, 0.0)
    return Chunk(
        rows=rows, q=x.q, k=x.k, v=x.v, aq=aq, ak=ak, av=av, vv=torch.cat([x.v, x.v * x.v], -1), vis=x.vis, pairs=x.pairs, n=x.n, empty=x.empty,
        seen=x.k.new_full((*x.k.shape[:2], 1), x.n.shape[1] > 0, dtype=torch.bool) if x.seen is None else x.seen,
        A=A, S=S, abs_s=S.abs(), m=m, bad=bad, bad_v=x.bad_v, top=top, low=low, hidden_v=hidden_v,
        parts=parts, sink=sink, kept=kept, factor=factor,
        small_q=small_q, small_k=small_k, small_v=small_v,
    )  # fmt: skip
