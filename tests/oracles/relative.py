"""Problems with a relative position bias, their buckets pair by pair, and the gradient of the table by autograd."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from flashverify_oracles import relative_bias, relative_buckets

LAYOUTS = ("top-left", "bottom-right", "lengths", "packed")
BUCKETS = 6
# Reach 3; the distances are unordered on purpose, two of them share a bucket, and bucket 4 is nobody's.
DISTANCE_BUCKETS = torch.tensor([5, 0, 3, 1, 0, 2, 5], dtype=torch.int32)


def positions(layout: str, B: int, Sq: int, Sk: int) -> tuple[Tensor, Tensor, Tensor]:
    """`row` `[B, Sq]` shifted onto the axis of the keys, `key` `[B, Sk]`, and a mask `[B, 1, Sq, Sk]`."""
    row, key = torch.arange(Sq).repeat(B, 1), torch.arange(Sk).repeat(B, 1)
    seen = torch.ones(B, 1, Sq, Sk, dtype=torch.bool)
    if layout == "bottom-right":
        row += Sk - Sq
    elif layout == "lengths":
        lengths = [max(1, Sk - 2 * b) for b in range(B)]
        row += torch.tensor(lengths)[:, None] - Sq
        seen = (key < torch.tensor(lengths)[:, None])[:, None, None, :].expand(B, 1, Sq, Sk)
    elif layout == "packed":
        rows, keys = Sq // 2, Sk // 3
        seen = ((torch.arange(Sq) < rows)[:, None] == (torch.arange(Sk) < keys)).expand(B, 1, Sq, Sk)
        row[:, :rows] += keys - rows
        row[:, rows:] += (Sk - keys) - (Sq - rows) - rows
        key[:, keys:] -= keys
    return row, key, seen


def table_of(Hq: int, seed: int = 0) -> Tensor:
    """`[Hq, BUCKETS]` fp32."""
    return torch.randn(Hq, BUCKETS, generator=torch.Generator().manual_seed(seed))


def arguments(table: Tensor, row: Tensor, key: Tensor) -> tuple[Any, dict[str, Any]]:
    """The bias as a callable, and what asks for the gradient of its table."""

    def bias(rows: slice, keys: slice) -> Tensor:
        return relative_bias(table, DISTANCE_BUCKETS, row[:, rows], key[:, keys])

    def buckets(rows: slice, keys: slice) -> Tensor:
        return relative_buckets(DISTANCE_BUCKETS, row[:, rows], key[:, keys])

    return bias, {"relative_buckets": buckets, "bucket_count": table.shape[1]}


def by_autograd(
    x: dict[str, Tensor], scale: float, options: dict[str, Any], table: Tensor, row: Tensor, key: Tensor
) -> dict[str, Tensor]:
    """o, dq, dk, dv and the gradient of the table from whole matrices; the bias is a product with indicators of the buckets."""
    q, k, v, t = (y.double().requires_grad_() for y in (x["q"], x["k"], x["v"], table))
    reads = torch.zeros(*x["visible"].shape[:1], row.shape[1], key.shape[1], table.shape[1], dtype=torch.float64)
    for b, i, j in torch.cartesian_prod(*(torch.arange(n) for n in reads.shape[:3])).tolist():
        distance = min(max(int(key[b, j]) - int(row[b, i]), -3), 3)
        reads[b, i, j, DISTANCE_BUCKETS.tolist()[distance + 3]] = 1.0
    group = q.shape[1] // k.shape[1]
    s = scale * q @ k.repeat_interleave(group, 1).mT
    if options.get("softcap"):
        s = options["softcap"] * torch.tanh(s / options["softcap"])
    s = s + torch.einsum("hn,bijn->bhij", t, reads)
    nonempty = x["visible"].any(-1, keepdim=True)
    s = torch.where(x["visible"], s, -math.inf)
    if options.get("sink") is not None:
        s = torch.cat([s, options["sink"].double()[:, None, None].expand(*s.shape[:3], 1)], -1)
    s = torch.where(nonempty, s, 0.0)
    p = torch.softmax(s, -1)[..., : k.shape[2]]
    if options.get("keep") is not None:
        p = p * options["keep"] / (1 - options["dropout"])
    o = p @ v.repeat_interleave(group, 1) * nonempty
    loss = (o * x["do"].double()).sum() + (torch.logsumexp(s, -1) * x["dlse"] * nonempty[..., 0]).sum()
    gradients = torch.autograd.grad(loss, (q, k, v, t))
    return {"o": o.detach(), **dict(zip(("dq", "dk", "dv", "drelative_bias"), gradients, strict=True))}
