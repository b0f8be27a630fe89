"""One attention in plain torch, tile by tile, forward and backward, with the freedoms that right kernels take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flashverify import Forward

if TYPE_CHECKING:
    from flashverify import Problem

__all__ = ["Tiled", "operands"]

_LN2 = math.log(2.0)


def operands(p: Problem) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k, v in fp32 with a kv head for each query head, and the mask; keys that no row sees are 0."""
    group = p.q.shape[1] // p.k.shape[1]
    mask = p.dense_mask()
    shape = (*p.q.shape[:3], p.k.shape[2])
    see = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    seen = see.any(2).unsqueeze(-1)
    k, v = (torch.where(seen, x.float().repeat_interleave(group, 1), 0.0) for x in (p.k, p.v))
    rows = see.any(3).unsqueeze(-1)
    return torch.where(rows, p.q.float(), 0.0), k, v, see


@dataclass(frozen=True, kw_only=True)
class Tiled:
    """How it computes; the defaults are those of flash attention.

    Args:
        block: keys of a tile.
        order: of the tiles: `up`, `down` or `random`.
        natural: exp of natural logits in place of exp2.
        base2: the LSE is returned in base 2.
        normalise: `end`, `every_block`, `before_cast`, `lse` or `lse_weights`.
        splits: of the keys, merged through their LSEs.
        tau: the accumulator is rescaled only when the maximum grows by more, in base 2.
        prescale: q times scale and log2 e is rounded to the input dtype.
        row_sum: `unrounded` or `rounded`.
        smoothed: the mean of k is subtracted.
        narrow: what is rounded to the input dtype beside P and dS, of `pv` and `dp`.
        delta: `o`, `o_fp32` or `p`.
        kept: P of the forward is kept for the backward.
        scale_ds: `after` or `before`.
        minus_delta: the accumulator of dP starts at -delta.
        ds_rounded: dS is made of the rounded P.
        empty_o, empty_lse: of a row that sees no key.
    """

    block: int = 16
    order: str = "up"
    natural: bool = False
    base2: bool = False
    normalise: str = "end"
    splits: int = 1
    tau: float = 0.0
    prescale: bool = False
    row_sum: str = "unrounded"
    smoothed: bool = False
    narrow: tuple[str, ...] = ()
    delta: str = "o"
    kept: bool = False
    scale_ds: str = "after"
    minus_delta: bool = False
    ds_rounded: bool = False
    empty_o: float = 0.0
    empty_lse: float = -math.inf

    def _exp(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x) if self.natural else torch.exp2(x)

    def _log(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x) if self.natural else torch.log2(x)

    def _factor(self, p: Problem) -> torch.Tensor:
        one = torch.tensor(p.scale, dtype=torch.float32)
        return one if self.natural else one * torch.tensor(math.log2(math.e))

    def _logits(self, p: Problem, q: torch.Tensor, k: torch.Tensor, see: torch.Tensor) -> torch.Tensor:
        c = self._factor(p)
        z = (q * c).to(p.q.dtype).float() @ k.mT if self.prescale else q @ k.mT * c
        return torch.where(see, z, -math.inf)

    def _cast(self, name: str, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x.to(dtype).float() if name in self.narrow else x

    def _part(self, p: Problem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, see: torch.Tensor):  # type: ignore[no-untyped-def]
        """O in fp32, the LSE in the kernel's base, and P, of some of the keys."""
        dtype, start = p.q.dtype, list(range(0, k.shape[2], self.block))
        if self.order == "down":
            start.reverse()
        elif self.order == "random":
            start = [start[i] for i in torch.randperm(len(start)).tolist()]
        m = torch.full((*q.shape[:3], 1), -math.inf)
        row, acc, weights = (
            torch.zeros_like(m),
            q.new_zeros(*q.shape[:3], v.shape[-1]),
            torch.zeros_like(see, dtype=torch.float32),
        )
        for first in start:
            keys = slice(first, first + self.block)
            z = self._logits(p, q, k[:, :, keys], see[..., keys])
            top = z.amax(-1, keepdim=True)
            new = torch.where((top > m + self.tau) | torch.isinf(m), torch.maximum(m, top), m)
            safe = torch.where(torch.isinf(new), 0.0, new)
            x, alpha = self._exp(z - safe), torch.where(torch.isinf(m), 0.0, self._exp(m - safe))
            rounded = x.to(dtype).float()
            before = row
            row = row * alpha + (rounded if self.row_sum == "rounded" else x).sum(-1, keepdim=True)
            if self.normalise == "every_block":
                acc = acc * before
            acc = acc * alpha + self._cast("pv", rounded @ v[:, :, keys], dtype)
            if self.normalise == "every_block":
                acc = torch.where(row > 0, acc / row, 0.0)
            weights = weights * alpha
            weights[..., keys] = x
            m = new
        some = row > 0
        lse = torch.where(some, m, 0.0) + torch.where(some, self._log(row), 0.0)
        share = torch.where(some, weights / row, 0.0)
        if self.normalise == "lse_weights":
            share = torch.where(some, self._exp(self._logits(p, q, k, see) - lse), 0.0)
            o = share.to(dtype).float() @ v
        elif self.normalise == "before_cast":
            o = share.to(dtype).float() @ v
        elif self.normalise == "lse":
            o = torch.where(some, acc * self._exp(torch.where(some, m, 0.0) - lse), 0.0)
        else:
            o = acc if self.normalise == "every_block" else torch.where(some, acc / row, 0.0)
        return o, torch.where(some, lse, -math.inf), share

    def forward(self, p: Problem) -> Forward:
        """O and LSE, and what the backward starts from."""
        q, k, v, see = operands(p)
        missing: torch.Tensor | float = 0.0
        if self.smoothed:
            mean = k.mean(2, keepdim=True).to(p.q.dtype).float()
            k, missing = (k - mean).to(p.q.dtype).float(), q @ mean.mT * self._factor(p)
        size = -(-k.shape[2] // self.splits)
        cuts = [slice(i, i + size) for i in range(0, k.shape[2], size)]
        parts = [self._part(p, q, k[:, :, cut], v[:, :, cut], see[..., cut]) for cut in cuts]
        o, lse, share = parts[0]
        if len(parts) > 1:
            each = torch.stack([part[1] for part in parts])
            top = each.amax(0)
            weight = self._exp(each - torch.where(torch.isinf(top), 0.0, top))
            total = weight.sum(0)
            o = torch.where(total > 0, (torch.stack([part[0] for part in parts]) * weight).sum(0) / total, 0.0)
            lse = top + self._log(total)
        lse = lse + missing
        empty = ~see.any(-1, keepdim=True)
        returned = lse if self.natural is not self.base2 else lse * _LN2 if not self.natural else lse / _LN2
        returned = torch.where(empty, self.empty_lse, returned).squeeze(-1)
        stored = torch.where(empty, self.empty_o, o).to(p.q.dtype)
        return Forward(stored, returned, (o, lse, share, torch.where(empty, 0.0, stored.float())))

    def backward(self, p: Problem, forward: Forward) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """dQ, dK and dV."""
        assert p.do is not None
        q, k, v, see = operands(p)
        o, lse, share, stored = forward.saved
        dtype, scale, live = p.q.dtype, torch.tensor(p.scale, dtype=torch.float32), torch.isfinite(lse)
        do = torch.where(live, p.do.float(), 0.0)
        z = self._logits(p, q, k, see) - torch.where(live, lse, 0.0)
        weight = share if self.kept else torch.where(live, self._exp(z), 0.0)
        rounded = weight.to(dtype).float()
        dp = self._cast("dp", do @ v.mT, dtype)
        delta = {"o": do * stored, "o_fp32": do * o, "p": weight * dp}[self.delta].sum(-1, keepdim=True)
        x = do @ v.mT + -delta if self.minus_delta else dp - delta
        if p.dlse is not None:
            x = x + torch.where(live, p.dlse.float().unsqueeze(-1), 0.0)
        ds = torch.where(see, (rounded if self.ds_rounded else weight) * x, 0.0)
        ds = (ds * scale if self.scale_ds == "before" else ds).to(dtype).float()
        after = 1.0 if self.scale_ds == "before" else scale

        def over_group(y: torch.Tensor) -> torch.Tensor:
            return y.view(y.shape[0], p.k.shape[1], -1, *y.shape[2:]).sum(2).to(dtype)

        return (ds @ k * after).to(dtype), over_group(ds.mT @ q * after), over_group(rounded.mT @ do)
