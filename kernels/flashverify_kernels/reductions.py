"""Gradients that are sums over what the kernels leave behind: plain tensor operations."""

import torch

from flashverify_kernels.options import Options
from flashverify_kernels.relative import RelativeBias, clamped_buckets
from flashverify_kernels.terms import LOG2_E

_AT_ONCE = 1 << 24
"""Elements of dS that are held by distance at once."""


def bias_gradient(ds: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Sum dS over the axes along which the bias was broadcast, then round once.

    Args:
        ds: `[B, Hq, Sq, Sk]` fp32, 0 at every invisible pair.
        bias: as given.

    Returns:
        The gradient in the shape and dtype of `bias`.
    """
    shared = [axis for axis in range(4) if bias.shape[axis] == 1 != ds.shape[axis]]
    if shared:
        ds = ds.sum(shared, keepdim=True)
    return ds.to(bias.dtype)


def sink_gradient(
    sink: torch.Tensor, lse2: torch.Tensor, delta: torch.Tensor, cu_q: torch.Tensor | None = None
) -> torch.Tensor:
    """Sum over rows: dsink = P_sink (dLSE - rowsum(dO * O)), with P_sink = exp2(sink log2(e) - LSE2).

    In fp64, where neither torch's exponential nor the order of its sum shows after the one rounding to fp32; only
    sink log2(e) is fp32, as in the forward.

    Args:
        sink: `[Hq]` fp32, natural units.
        lse2: `[B, Hq, Sq]` fp32, log base 2; -inf in a row that sees no key, which gives nothing.
        delta: `[B, Hq, Sq]` fp32, rowsum(dO * O) - dLSE.
        cu_q: `[n + 1]` int32 limits of packed sequences: rows past the last one are not looked at, or None.

    Returns:
        `[Hq]` fp32.
    """
    counts = lse2 != -torch.inf
    if cu_q is not None:
        counts = counts & (torch.arange(lse2.shape[2], device=lse2.device) < cu_q[-1])
    largest = torch.finfo(torch.float32).max
    sink2 = (
        (sink * LOG2_E).clamp(-largest, largest).double()[:, None]
    )  # rounded as in the kernel: a huge one is the LSE
    weight = torch.exp2(sink2 - torch.where(counts, lse2, torch.inf))
    return -(weight * torch.where(counts, delta, 0.0)).sum((0, 2)).to(torch.float32)


def table_gradient(ds: torch.Tensor, positions: torch.Tensor, relative: RelativeBias) -> torch.Tensor:
    """Sum dS over the pairs of each bucket: by distance, then by bucket, in fp64 and in a fixed order; rounded once.

    Args:
        ds: `[B, Hq, rows, keys]` fp32, 0 at every invisible pair.
        positions: of its rows, see `row_positions`.
        relative: as given.

    Returns:
        `[Hq, buckets]` fp32; exactly 0 for a bucket without a visible pair.
    """
    (_, heads, rows, keys), count = ds.shape, relative.table.shape[1]
    if not ds.numel():
        return torch.zeros(heads, count, dtype=torch.float32, device=ds.device)
    buckets = clamped_buckets(relative)
    far = buckets.shape[0] // 2
    reach = min(far, max(rows, keys))  # no visible pair is farther apart
    inner = torch.arange(1 - reach, reach, device=ds.device)
    total = torch.zeros(heads, 2 * reach + 1, dtype=torch.float64, device=ds.device)
    step = max(1, _AT_ONCE // (ds.shape[0] * heads * (2 * reach + 1)))
    for first in range(0, rows, step):
        total += _by_distance(ds[:, :, first : first + step], positions[:, first : first + step, None], inner, reach)
    numbers = torch.arange(count, device=ds.device)[:, None]
    member = buckets[far - reach : far + reach + 1] == numbers  # [buckets, distances]
    return torch.stack([torch.where(member, sums, 0.0).sum(-1) for sums in total]).to(torch.float32)


def _by_distance(ds: torch.Tensor, position: torch.Tensor, inner: torch.Tensor, reach: int) -> torch.Tensor:
    """Sums of `ds` `[B, Hq, rows, keys]` over the pairs of each clipped distance, `[Hq, 2 * reach + 1]` fp64."""
    keys = ds.shape[3]
    j = torch.arange(keys, device=ds.device)
    key = position + inner  # [B, rows, distances]
    at = key.clamp(0, keys - 1)[:, None].expand(*ds.shape[:2], -1, -1)
    near = torch.where(((key >= 0) & (key < keys))[:, None], ds.gather(3, at), 0.0)
    before, after = (torch.where(far[:, None], ds, 0.0) for far in (j <= position - reach, j >= position + reach))
    ends = [x.sum((0, 2, 3), dtype=torch.float64)[:, None] for x in (before, after)]
    return torch.cat([ends[0], near.sum((0, 2), dtype=torch.float64), ends[1]], 1)


def row_positions(ds: torch.Tensor, options: Options) -> torch.Tensor:
    """Where each row of dS stands among the keys of its sequence, from which distances are measured; waits for no GPU.

    Args:
        ds: `[B, Hq, rows, keys]`.
        options: lengths or packed sequences, and the alignment of `causal`.

    Returns:
        `[B or 1, rows]` int64; of a row that belongs to no sequence it has no meaning.
    """
    rows, keys = ds.shape[2:]
    i, packed, shift = torch.arange(rows, device=ds.device)[None], options.packed, options.causal == "bottom-right"
    if packed is None:
        q, k = (
            size if lengths is None else lengths.long().clamp(0, size)[:, None]
            for size, lengths in ((rows, options.query_lengths), (keys, options.key_lengths))
        )
        return i + shift * (k - q)
    if not packed.sequences:
        return i
    sequence = torch.searchsorted(packed.cu_q[1:], i, right=True, out_int32=True).clamp(max=packed.sequences - 1)
    start = packed.cu_q.long()
    return i - start[sequence] + shift * (packed.cu_k.long().diff() - start.diff())[sequence]
