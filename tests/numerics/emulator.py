"""A flash attention kernel in torch, tile by tile in fp32, with the worst behaviour that the primitives are documented to have.

It shares nothing with the bounds: tests compare the two. Defects are planted by name.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

F32 = torch.float32
TINY = 2.0**-126


def truncate(x: Tensor, exponent: Tensor) -> Tensor:
    """Truncate toward zero on the grid `2^exponent`; float64 holds both exactly."""
    grid = torch.ldexp(torch.ones_like(x), exponent)
    return torch.trunc(x / grid) * grid


def tensor_core(a: Tensor, b: Tensor, c: Tensor, block: int = 8, fraction: int = 24) -> Tensor:
    """`a @ b + c` as a matrix unit adds: `block` products and the accumulator truncated on the grid of the largest, the sum truncated to fp32."""
    a, b, c = a.double(), b.double(), c.double()
    for start in range(0, a.shape[-1], block):
        terms = a[..., :, None, start : start + block] * b[..., start : start + block, :].mT[..., None, :, :]
        terms = torch.cat([terms, c[..., None]], -1)
        top = torch.frexp(terms.abs().amax(-1, keepdim=True)).exponent - 1
        total = truncate(terms, (top - fraction).clamp(min=-960)).sum(-1)
        c = truncate(total, (torch.frexp(total).exponent - 24).clamp(min=-149))
    return c.to(F32)


@dataclass(kw_only=True)
class Emulator:
    """One kernel: sizes of its tiles, its form, the bias of its exponential (+1, -1, 0 random) and its defects."""

    dtype: torch.dtype
    scale: float
    block_n: int = 16
    ulps: int = 1
    exp_error: float = 0.0
    natural: bool = False
    matrix_unit: bool = False
    row_sum_rounded: bool = False
    scale_ds_before: bool = False
    scale_ds_operand: bool = False
    ds_rounded_p: bool = False
    prescale_k_bwd: bool = False
    tf32: bool = False
    max_apart: bool = False
    convert_lse: bool = False
    tau: float = 0.0
    n_splits: int = 1
    delta_from: str = "o"
    keep_p: bool = False
    normalise: str = "end"
    narrow: frozenset[str] = frozenset()
    """What is rounded to the dtype beside P and dS: s, pv, dp, acc."""
    smoothed: bool = False
    lean: Tensor | None = None
    """Sign of the error of each weight of the backward, in place of `ulps`."""
    defects: frozenset[str] = frozenset()
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    def __post_init__(self) -> None:
        factor = 1.001 if "scale" in self.defects else 1.0
        one = torch.tensor(self.scale * factor, dtype=torch.float64).to(F32)
        log2e = torch.tensor(math.log2(math.e), dtype=F32)
        self.sc = one
        self.c = one if self.natural else one * log2e
        self.log2e = log2e

    def ex2(self, t: Tensor, lean: Tensor | None = None) -> Tensor:
        exact = torch.exp(t.double()) if self.natural else torch.exp2(t.double())
        if self.exp_error:
            exact = exact * (1 + self.exp_error * (self.ulps if lean is None else lean))
        r = exact.to(F32)
        if not self.exp_error:
            sign = torch.full_like(r, float(self.ulps))
            if self.ulps == 0:
                sign = torch.randint(-1, 2, r.shape, generator=self.generator).to(F32)
            spacing = torch.nextafter(r, torch.full_like(r, math.inf)) - r
            r = torch.where((r > TINY) & torch.isfinite(r) & (t != 0), r + 2 * sign * spacing, r)
        return torch.where(r < TINY, 0.0, r)

    def dot(self, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        a, b = a.to(F32), b.to(F32)
        if self.tf32:
            a, b = ((x.contiguous().view(torch.int32) & ~0x1FFF).view(F32) for x in (a, b))
        if self.matrix_unit:
            start = a.new_zeros(*a.shape[:-1], b.shape[-1]) if c is None else c
            return tensor_core(a, b, start)
        out = a @ b
        return out if c is None else out + c

    def cast(self, name: str, x: Tensor) -> Tensor:
        return x.to(self.dtype).to(F32) if name in self.narrow else x

    def logits(self, q: Tensor, k: Tensor, vis: Tensor) -> Tensor:
        s = self.cast("s", self.dot(q, k.mT))
        if "s" in self.narrow:
            return torch.where(vis, self.cast("s", s * self.sc) * (1 if self.natural else self.log2e), -math.inf)
        return torch.where(vis, s * self.c, -math.inf)

    def smooth(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor | float]:
        """K without its mean, in the dtype, and what the LSE lacks for it."""
        if not self.smoothed:
            return k, 0.0
        mean = k.to(F32).mean(2, keepdim=True).to(self.dtype).to(F32)
        return (k.to(F32) - mean).to(self.dtype), self.dot(q, mean.mT) * self.c

    def expand(self, q: Tensor, k: Tensor) -> Tensor:
        return k.repeat_interleave(q.shape[1] // k.shape[1], 1)

    def part(self, q: Tensor, k: Tensor, v: Tensor, vis: Tensor) -> tuple[Tensor, Tensor]:
        """Unrounded O and LSE (in the kernel's own base) of one split."""
        m = torch.full((*q.shape[:3], 1), -math.inf)
        row, acc = torch.zeros_like(m), torch.zeros(*q.shape[:3], v.shape[-1])
        kept = torch.zeros(*q.shape[:3], 0)
        for start in range(0, k.shape[2], self.block_n):
            keys = slice(start, start + self.block_n)
            z = self.logits(q, k[:, :, keys], vis[..., keys])
            top = z.amax(-1, keepdim=True)
            m_new = torch.where(top > m + self.tau, torch.maximum(m, top), m)
            m_safe = torch.where(torch.isinf(m_new), 0.0, m_new)
            if self.max_apart and not torch.isinf(m_safe).any():
                dots = self.dot(q, k[:, :, keys].mT).double()
                t = torch.where(vis[..., keys], (dots * self.c.double() - m_safe.double()).to(F32), -math.inf)
            else:
                t = z - m_safe
            p = self.ex2(t) if self.lean is None else self.ex2(t, self.lean[..., keys])
            alpha = self.ex2(m - m_safe)
            kept = torch.cat([kept * alpha, p], -1)
            if "alpha" in self.defects:
                alpha = torch.ones_like(alpha)
            rounded = p.to(self.dtype).to(F32)
            if "key" in self.defects and start == 0:
                rounded[..., 0], p[..., 0] = 0.0, 0.0
            row = row * alpha + (rounded if self.row_sum_rounded else p).sum(-1, keepdim=True)
            acc = acc * (1.0 if "alpha_acc" in self.defects else alpha)
            if self.narrow & {"pv", "acc"}:
                acc = self.cast("acc", self.cast("acc", acc) + self.cast("pv", self.dot(rounded, v[:, :, keys])))
            else:
                acc = self.dot(rounded, v[:, :, keys], acc)
            m = m_new
        o, total = torch.where(row > 0, acc / row, 0.0), row
        if self.normalise in ("lse", "lse_weights"):
            lse = m + (torch.log(row) if self.natural else torch.log2(row))
            lse = torch.where(row > 0, lse, 0.0)
            o = acc * torch.where(row > 0, self.ex2(torch.where(row > 0, m, 0.0) - lse), 0.0)
        if self.normalise == "lse_weights":
            p = self.ex2(self.logits(q, k, vis) - lse)
            o = self.dot(p.to(self.dtype).to(F32), v)
            kept, row = p, torch.ones_like(row)
        if self.normalise == "before_cast":
            o = self.dot(torch.where(row > 0, kept / row, 0.0).to(self.dtype), v)
        self.o_fp32, self.p = o, torch.where(row > 0, kept / row, 0.0)
        m = torch.where(total > 0, m, -math.inf)
        return o, m + (torch.log(total) if self.natural else torch.log2(total))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, vis: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """O in the dtype, the natural LSE and the LSE kept for the backward."""
        k, v = self.expand(q, k), self.expand(q, v)
        k, missing = self.smooth(q, k)
        size = -(-k.shape[2] // self.n_splits) if k.shape[2] else 1
        cuts = [slice(i, i + size) for i in range(0, max(1, k.shape[2]), size)]
        parts = [self.part(q, k[:, :, cut], v[:, :, cut], vis[..., cut]) for cut in cuts]
        o, lse = parts[0]
        if len(parts) > 1:
            lses = torch.stack([x for _, x in parts])
            top = lses.amax(0)
            weights = self.ex2(lses - torch.where(torch.isinf(top), 0.0, top))
            total = weights.sum(0)
            o = torch.where(total > 0, (torch.stack([x for x, _ in parts]) * weights).sum(0) / total, 0.0)
            lse = top + (torch.log(total) if self.natural else torch.log2(total))
        lse = lse + missing
        kept = lse
        returned = lse if self.natural else lse * torch.tensor(math.log(2.0), dtype=F32)
        if "lse_base" in self.defects:
            returned = lse
        if self.convert_lse:
            kept = returned * self.log2e
        return o.to(self.dtype), returned.squeeze(-1), kept

    def backward(
        self, q: Tensor, k: Tensor, v: Tensor, do: Tensor, o: Tensor, kept: Tensor, vis: Tensor, dlse: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """delta, dQ, dK, dV."""
        heads, (ke, ve) = k.shape[1], (self.expand(q, k), self.expand(q, v))
        delta = (do.to(F32) * (self.o_fp32 if self.delta_from == "o_fp32" else o.to(F32))).sum(-1, keepdim=True)
        if self.smoothed:
            smooth, missing = self.smooth(q, ke)
            z = self.logits(q, smooth, vis) + missing
        elif self.prescale_k_bwd:
            z = torch.where(vis, self.dot(q, (ke.to(F32) * self.c).to(self.dtype).mT), -math.inf)
        else:
            z = self.logits(q, ke, vis)
        if "unmasked" in self.defects:
            z[..., 0, -1] = (self.dot(q, ke.mT) * self.c)[..., 0, -1]
        live = torch.isfinite(kept)
        t = z - torch.where(live, kept, 0.0)
        p = (
            self.p
            if self.keep_p
            else torch.where(live, self.ex2(t) if self.lean is None else self.ex2(t, self.lean), 0.0)
        )
        dp = self.cast("dp", self.dot(do, ve.mT))
        if self.delta_from == "p":
            delta = ((p.to(self.dtype).to(F32) if self.ds_rounded_p else p) * dp).sum(-1, keepdim=True)
        x = dp - (0.0 if "delta" in self.defects else delta if dlse is None else delta - dlse.to(F32).unsqueeze(-1))
        p16 = p.to(self.dtype)
        ds = (p16.to(F32) if self.ds_rounded_p else p) * x
        if self.scale_ds_before:
            ds = ds * self.sc
        ds = torch.where(live, ds, 0.0)
        if "s" in self.narrow:
            ds = self.cast("s", ds)
        ds16, after = ds.to(self.dtype), torch.ones(()) if self.scale_ds_before else self.sc
        if self.scale_ds_operand:
            ds16, after = ds16.to(F32) * self.sc, torch.ones(())
        dq = (self.dot(ds16, ke) * after).to(self.dtype)
        dk = self.dot(ds16.mT, q) * (1.0 if "dk_scale" in self.defects else after)
        dv = self.dot(p16.mT, do)

        def fold(y: Tensor) -> Tensor:
            return y.view(y.shape[0], heads, -1, *y.shape[2:]).sum(2).to(self.dtype)

        return delta.squeeze(-1), dq, fold(dk), fold(dv)
