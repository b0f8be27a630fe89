"""Merges of partial results in plain torch fp32: what the kernels of these tests are made of."""

import torch


def weights(lse, exp):
    """Of partials `[n, ...]`: each weight, and the maximum and the sum that make the LSE; 0 where every partial is empty."""
    largest = lse.amax(0)
    safe = largest.masked_fill(largest.isneginf(), 0.0)
    each = exp(lse - safe)
    return each, safe, each.sum(0)


def merged(o, lse, base="e"):
    """O and LSE of `o` `[n, ..., D]` and `lse` `[n, ...]`."""
    exp, log = (torch.exp2, torch.log2) if base == "2" else (torch.exp, torch.log)
    each, largest, total = weights(lse, exp)
    share = each / total.clamp(min=1e-30)
    return (share.unsqueeze(-1) * o.float()).sum(0).to(o.dtype), largest + log(total)


def update(out, lse, block_out, block_lse, slice_=None):
    """One step of a ring: out `[B, S, H, D]` fp32, lse `[B, S, H, 1]`."""
    block_lse = block_lse.transpose(1, 2).unsqueeze(-1)
    if out is None:
        return block_out.float(), block_lse
    if slice_ is not None:
        out[slice_], lse[slice_] = update(out[slice_], lse[slice_], block_out, block_lse.squeeze(-1).transpose(1, 2))
        return out, lse
    both = torch.stack((lse, block_lse))
    each, largest, total = weights(both, torch.exp)
    share = each / total.clamp(min=1e-30)
    return share[0] * out + share[1] * block_out.float(), largest + total.log()
