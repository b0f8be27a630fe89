"""The emulated kernel of `emulator`, with softcap, biases, ALiBi, a sink, dropout and partial outputs of any dtype. Defects are planted by name."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.numerics.emulator import F32, Emulator

LOG2E = math.log2(math.e)


@dataclass(kw_only=True)
class Family(Emulator):
    """One kernel; biases `[B|1, Hq|1, Sq, Sk]`, slopes and sink `[Hq]` fp32, keep bool `[B, Hq, Sq, Sk]`.

    `tanh` and `slope` name the forms of the softcap, `sink_first` whether the sink starts the row sum or ends it, `scale_weights` where the dropout
    factor multiplies: O and the gradients, the fp32 weights, or the rounded weights in the input dtype.
    """

    softcap: float | None = None
    biases: tuple[Tensor, ...] = ()
    slopes: Tensor | None = None
    sink: Tensor | None = None
    keep: Tensor | None = None
    p: float = 0.0
    tanh_form: str = "exp"
    slope_form: str = "square"
    sink_first: bool = True
    scale_weights: str = "end"
    partial: torch.dtype = torch.float32
    natural_partials: bool = False

    def number(self, x: float) -> Tensor:
        return torch.tensor(x, dtype=torch.float64).to(F32)

    @property
    def factor(self) -> Tensor:
        return 1 / (1 - self.number(self.p))

    def tanh(self, x: Tensor) -> Tensor:
        if self.tanh_form == "approx":
            return (torch.tanh(x.double()) * (1 + 2.0**-11 * self.ulps)).to(F32)
        e = self.ex2(x.abs() * self.number(-2 * LOG2E))
        return torch.where(x < 0, -1.0, 1.0) * ((1 - e) / (1 + e))

    def gain(self, x: Tensor) -> Tensor:
        if self.slope_form == "square":
            return 1 - self.tanh(x) ** 2
        e = self.ex2(x.abs() * self.number(-2 * LOG2E))
        c = (e + e) / (1 + e)
        return c * (2 - c)

    def alibi(self, q: Tensor, k: Tensor, keys: slice) -> Tensor:
        assert self.slopes is not None
        far = (torch.arange(q.shape[2])[:, None] - torch.arange(keys.start, keys.start + k.shape[2])).abs().to(F32)
        slopes = self.slopes * (1.01 if "slope" in self.defects else 1.0)
        return (slopes * self.log2e)[:, None, None] * far

    def base2(self, q: Tensor, k: Tensor, vis: Tensor, keys: slice) -> tuple[Tensor, Tensor | None]:
        """Logits of one tile in base 2, and the argument of the tanh."""
        dot, x = self.dot(q, k.mT), None
        z = dot * self.c
        if self.softcap is not None:
            x = dot * self.number(self.scale / self.softcap)
            z = self.tanh(x) * self.number(self.softcap * LOG2E)
        for bias in self.biases:
            b = bias[..., keys].to(F32) * self.log2e
            if "bias_key" in self.defects and keys.start == 0:
                b = b.clone()
                b[..., 0] = 0.0
            z = z + b
        if self.slopes is not None:
            z = z - self.alibi(q, k, keys)
        return torch.where(vis, z, -math.inf), x

    def dropped(self, p: Tensor, keep: Tensor | None) -> Tensor:
        """The rounded weights as they enter a product."""
        if keep is None:
            return p.to(self.dtype).to(F32)
        p = torch.where(keep, p, 0.0)
        if self.scale_weights == "fp32":
            return (p * self.factor).to(self.dtype).to(F32)
        p = p.to(self.dtype)
        return (p * self.factor.to(self.dtype)).to(F32) if self.scale_weights == "input" else p.to(F32)

    def split(self, q: Tensor, k: Tensor, v: Tensor, vis: Tensor, cut: slice, sink: Tensor | None) -> list[Tensor]:
        """Normalised O and base-2 LSE of the keys of one split."""
        see_any = vis[..., cut].any(-1, keepdim=True) if sink is None else vis.any(-1, keepdim=True)
        see_any = see_any.expand(*q.shape[:3], 1)
        m = torch.full((*q.shape[:3], 1), -math.inf)
        row, acc = torch.zeros_like(m), torch.zeros(*q.shape[:3], v.shape[-1])
        if sink is not None and self.sink_first:
            m, row = sink.expand_as(m).clone(), torch.ones_like(row)
        for start in range(cut.start, cut.stop, self.block_n):
            keys = slice(start, min(start + self.block_n, cut.stop))
            z, _ = self.base2(q, k[:, :, keys], vis[..., keys], keys)
            m_new = torch.maximum(m, z.amax(-1, keepdim=True))
            safe = torch.where(torch.isinf(m_new), 0.0, m_new)
            p, alpha = self.ex2(z - safe), self.ex2(m - safe)
            row = row * alpha + p.sum(-1, keepdim=True)
            keep = None if self.keep is None else self.keep[..., keys]
            acc = self.dot(self.dropped(p, keep), v[:, :, keys], acc * alpha)
            m = m_new
        if sink is not None and not self.sink_first:
            m_new = torch.maximum(m, sink)
            alpha = self.ex2(m - m_new)
            row, acc, m = row * alpha + self.ex2(sink - m_new), acc * alpha, m_new
        row = torch.where(see_any, row, 0.0)
        o = torch.where(row > 0, acc / row, 0.0)
        if self.keep is not None and self.scale_weights == "end":
            o = o * self.factor
        return [o, torch.where(row > 0, m, -math.inf) + torch.log2(row)]

    def forward(self, q: Tensor, k: Tensor, v: Tensor, vis: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        k, v = self.expand(q, k), self.expand(q, v)
        sink = None if self.sink is None else (self.sink * self.log2e)[:, None, None]
        size = -(-k.shape[2] // self.n_splits)
        cuts = [slice(i, min(i + size, k.shape[2])) for i in range(0, k.shape[2], size)]
        vis = vis.expand(*q.shape[:3], k.shape[2])
        parts = [self.split(q, k, v, vis, cut, sink if i == 0 else None) for i, cut in enumerate(cuts)]
        o, lse = parts[0]
        if len(parts) > 1:
            ln2 = self.number(math.log(2.0))
            lses = torch.stack([x * ln2 if self.natural_partials else x for _, x in parts])
            top = lses.amax(0)
            gaps = lses - torch.where(torch.isinf(top), 0.0, top)
            weights = self.ex2(gaps * self.log2e if self.natural_partials else gaps)
            total = weights.sum(0)
            partial = torch.stack([x.to(self.partial).to(F32) for x, _ in parts])
            o = torch.where(total > 0, (partial * (weights / total)).sum(0), 0.0)
            lse = (top * self.log2e if self.natural_partials else top) + torch.log2(total)
        if "sink_lse" in self.defects and sink is not None:
            lse = torch.log2((torch.exp2(lse.double()) - torch.exp2(sink.double())).clamp(min=0)).to(F32)
        return o.to(self.dtype), (lse * self.number(math.log(2.0))).squeeze(-1), lse

    def backward(  # type: ignore[override]
        self, q: Tensor, k: Tensor, v: Tensor, do: Tensor, o: Tensor, kept: Tensor, vis: Tensor, dlse: Tensor | None
    ) -> tuple[Tensor, ...]:
        """delta, dQ, dK, dV, dS before its sum over what a bias is shared by, dSink."""
        heads, (ke, ve) = k.shape[1], (self.expand(q, k), self.expand(q, v))
        live = torch.isfinite(kept)
        delta = torch.where(live, (do.to(F32) * o.to(F32)).sum(-1, keepdim=True), 0.0)
        z, x = self.base2(q, ke, vis, slice(0, k.shape[2]))
        p = torch.where(live, self.ex2(z - torch.where(live, kept, 0.0)), 0.0)
        dp, keep = self.dot(do, ve.mT), self.keep
        if keep is not None:
            keep = keep.roll(1, -1) if "keep_shift" in self.defects else keep
            dp = torch.where(keep, dp * (1.0 if "dp_scale" in self.defects else self.factor), 0.0)
        offset = -delta if dlse is None else dlse.to(F32).unsqueeze(-1) - delta
        ds = torch.where(live & vis, p * (dp + offset), 0.0)
        dt = ds if x is None or "gain" in self.defects else ds * self.gain(x)
        dt16 = dt.to(self.dtype)
        dv = self.dot(self.dropped(p, keep).mT, do)
        if keep is not None and self.scale_weights == "end":
            dv = dv * self.factor

        def fold(y: Tensor) -> Tensor:
            return y.view(y.shape[0], heads, -1, *y.shape[2:]).sum(2).to(self.dtype)

        dq, dk = (self.dot(dt16, ke) * self.sc).to(self.dtype), self.dot(dt16.mT, q) * self.sc
        dsink = torch.zeros(q.shape[1])
        if self.sink is not None:
            weight = torch.where(
                live, self.ex2((self.sink * self.log2e)[:, None, None] - torch.where(live, kept, 0.0)), 0.0
            )
            dsink = (weight * offset).sum((0, 2, 3)) * (-1.0 if "dsink" in self.defects else 1.0)
        return delta.squeeze(-1), dq, fold(dk), fold(dv), ds, dsink

    def dbias(self, ds: Tensor, shape: tuple[int, ...]) -> Tensor:
        """DS summed in fp32 to the shape of a bias, in the input dtype."""
        if "dbias_batch" in self.defects:
            ds = ds[:1]
        return ds.sum_to_size(shape).to(self.dtype)
