"""An attention kernel emulated from its declared form: every rounding that the form allows, in the direction that is asked for.

It shares nothing with the bounds but the type that names a form, and nothing with `emulator` but the model of a matrix unit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tests.numerics.emulator import F32, TINY, tensor_core

if TYPE_CHECKING:
    from flashverify.numerics import Form

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
# Products a step and fraction bits: of 16-bit operands, of tf32.
UNITS = {"sm_80": ((8, 24), (4, 24)), "sm_90": ((16, 25), (8, 25))}
U = 2.0**-24
LN2, LOG2E = math.log(2.0), math.log2(math.e)
QUERY_TILE = 16


def number(x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64).to(F32)


def tf32(x: Tensor) -> Tensor:
    """Low bits cut off, as the matrix unit reads an operand."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(F32)


@dataclass(kw_only=True)
class Formed:
    """One kernel. `lean` is the sign of the errors of exponentials and logarithms, 0 for random ones, drawn anew from `seed` for each pass."""

    form: Form
    dtype: torch.dtype
    scale: float
    lean: int = 0
    seed: int = 0
    bias: Tensor | None = None
    sink: Tensor | None = None
    gen: torch.Generator = field(default_factory=torch.Generator)

    def __post_init__(self) -> None:
        self.natural = self.form.exp == "exp"
        self.sc = number(self.scale)
        self.c = self.sc if self.natural else self.sc * number(LOG2E)
        self.unit = number(1.0) if self.natural else number(LOG2E)

    def signs(self, like: Tensor) -> Tensor:
        if self.lean:
            return torch.full_like(like, float(self.lean))
        return torch.randint(0, 2, like.shape, generator=self.gen).to(like.dtype) * 2 - 1

    def exp(self, t: Tensor) -> Tensor:
        """The exponential in the kernel's own base, within its eps, flushed."""
        exact = torch.exp2((t * number(LOG2E) if self.natural else t).double())
        r = (exact * (1 + (self.form.eps - 1.01 * U) * self.signs(exact))).to(F32)
        r = torch.where(t == 0, 1.0, r)
        return torch.where(r < TINY, 0.0, r)

    def log(self, x: Tensor) -> Tensor:
        exact = torch.log2(x.double())
        inside = (x > 0.5) & (x < 2)
        off = torch.where(inside, 2.0**-22, exact.abs() * 2.0**-22) - 1.01 * U * exact.abs()
        r = (exact + off.clamp(min=0.0).nan_to_num(0.0, 0.0, 0.0) * self.signs(exact)).to(F32)
        return r * number(LN2) if self.natural else r

    def dot(self, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        a, b = a.to(F32), b.to(F32)
        narrow, kind = self.dtype != F32, self.form.dot
        c = a.new_zeros(*a.shape[:-1], b.shape[-1]) if c is None else c
        if narrow or kind == "ieee":
            return self._unit(a, b, c, 0) if narrow else a @ b + c
        if kind == "tf32":
            return self._unit(tf32(a), tf32(b), c, 1)
        (big_a, small_a), (big_b, small_b) = self._halves(a), self._halves(b)
        for x, y in ((small_a, big_b), (big_a, small_b), (big_a, big_b)):
            c = self._unit(x, y, c, 1)
        return c

    def _halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        big = tf32((x.contiguous().view(torch.int32) + 0x1000).view(F32))
        big = torch.where(torch.isfinite(big), big, tf32(x))
        return big, tf32(x - big)

    def _unit(self, a: Tensor, b: Tensor, c: Tensor, kind: int) -> Tensor:
        unit = UNITS.get(self.form.architecture)
        return a @ b + c if unit is None else tensor_core(a, b, c, *unit[kind])

    def cast(self, x: Tensor, to: str) -> Tensor:
        """Rounded to a dtype, named or `"input"`, and back."""
        return x.to(self.dtype if to == "input" else DTYPES[to]).to(F32)

    def logits(self, q: Tensor, k: Tensor, vis: Tensor, keys: slice, prescale: str) -> tuple[Tensor, Tensor]:
        """Rounded logits of one tile in the kernel's own base, and the unrounded ones, float64."""
        c = number(1.0) if prescale != "none" else self.c
        q = (q.to(F32) * self.c).to(self.dtype) if prescale == "q" else q
        k = (k.to(F32) * self.c).to(self.dtype) if prescale == "k" else k
        dot = self.dot(q, k.mT)
        narrow = self.form.s_dtype == "input"
        z = self.cast(self.cast(dot, "input") * self.sc, "input") if narrow else dot * c
        exact = dot.double() * c.double()
        if self.bias is not None:
            b = self.bias[..., keys].to(F32)
            z = self.cast(z + b, "input") * self.unit if self.form.s_dtype == "input" else z + b * self.unit
            exact = z.double()
        elif self.form.s_dtype == "input":
            z = z * self.unit
            exact = z.double()
        return torch.where(vis, z, -math.inf), torch.where(vis, exact, -math.inf)

    def part(self, q: Tensor, k: Tensor, v: Tensor, vis: Tensor, cut: slice, *, last: bool) -> tuple[Tensor, Tensor]:
        """Normalised O and LSE in the kernel's own base of the keys of one split."""
        form, block = self.form, self.form.block_n or 16
        m = torch.full((*q.shape[:3], 1), -math.inf)
        row, acc = torch.zeros_like(m), torch.zeros(*q.shape[:3], v.shape[-1])
        tau = form.rescale_threshold * (LN2 if self.natural else 1.0)
        for start in range(cut.start, cut.stop, block):
            keys = slice(start, min(start + block, cut.stop))
            z, exact = self.logits(q, k[:, :, keys], vis[..., keys], keys, form.prescale_fwd)
            top = z.amax(-1, keepdim=True)
            m_new = torch.where(top > m + tau, torch.maximum(m, top), m)
            safe = torch.where(torch.isinf(m_new), 0.0, m_new)
            t = (exact - safe.double()).to(F32) if form.max_source == "apart" else z - safe
            p, alpha = self.exp(t), self.exp(m - safe)
            rounded = self.cast(p, "input")
            new = row * alpha + (rounded if form.row_sum == "rounded" else p).sum(-1, keepdim=True)
            if form.normalise == "every_block":
                acc = torch.where(new > 0, self.dot(rounded, v[:, :, keys], acc * (row * alpha)) / new, 0.0)
            else:
                acc = self.add(acc * alpha, rounded, v[:, :, keys])
            row, m = new, m_new
        if last and self.sink is not None:
            s = (self.sink.to(F32) * self.unit)[:, None, None]
            m_new = torch.where(row > 0, torch.maximum(m, s), m)
            safe = torch.where(torch.isinf(m_new), 0.0, m_new)
            alpha = self.exp(m - safe)
            new = torch.where(row > 0, row * alpha + self.exp(s - safe), 0.0)
            every = form.normalise == "every_block"
            acc = torch.where(new > 0, acc * (row * alpha) / new, 0.0) if every else acc * alpha
            row, m = new, m_new
        lse = torch.where(row > 0, torch.where(row > 0, m, 0.0) + self.log(row), -math.inf)
        if form.normalise == "lse":
            exponent = torch.where(row > 0, m - lse, 0.0)
            o = torch.where(row > 0, acc * self.exp(exponent), 0.0)
        else:
            o = acc if form.normalise == "every_block" else torch.where(row > 0, acc / row, 0.0)
        return o, lse

    def add(self, acc: Tensor, p: Tensor, v: Tensor) -> Tensor:
        """An accumulator and the product of a tile, with the narrow roundings of either."""
        if (self.form.o_accum, self.form.pv_dtype) == ("fp32", "fp32"):
            return self.dot(p, v, acc)
        product = self.dot(p, v)
        product = self.cast(product, "input") if self.form.pv_dtype == "input" else product
        return self.cast(self.cast(acc, self.form.o_accum) + product, self.form.o_accum)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, vis: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """O in the dtype, the natural LSE, and the LSE that the backward reads in the kernel's own base."""
        self.gen.manual_seed(self.seed)
        group, N = q.shape[1] // k.shape[1], k.shape[2]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        size = -(-N // self.form.n_splits)
        cuts = [slice(i, min(i + size, N)) for i in range(0, N, size)]
        parts = [self.part(q, k, v, vis, cut, last=len(cuts) == 1) for cut in cuts]
        o, lse = parts[0]
        if len(parts) > 1:
            lses = torch.stack([x for _, x in parts])
            top = lses.amax(0)
            weights = self.exp(lses - torch.where(torch.isinf(top), 0.0, top))
            total = weights.sum(0)
            partial = torch.stack([self.cast(x, self.form.partial_dtype) for x, _ in parts])
            o = torch.where(total > 0, (partial * weights).sum(0) / total, 0.0)
            lse = torch.where(total > 0, top + self.log(total), -math.inf)
        self.o_fp32 = o
        returned = lse if self.natural else lse * number(LN2)
        kept = lse
        if self.form.bwd_lse_base == "e" and not self.natural:
            kept = returned * number(LOG2E)
        return o.to(self.dtype), returned.squeeze(-1), kept
