"""Gradients that are sums over what the kernels leave behind: plain tensor operations."""

import torch

from flashverify_kernels.terms import LOG2_E


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
