"""The backward of the kernel that `formed` emulates."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.numerics.emulator import F32
from tests.numerics.formed import QUERY_TILE, Formed


class FormedKernel(Formed):
    """Forward and backward."""

    def backward(
        self, q: Tensor, k: Tensor, v: Tensor, do: Tensor, o: Tensor, kept: Tensor, vis: Tensor, dlse: Tensor | None
    ) -> tuple[Tensor, ...]:
        """delta, dQ, dK, dV, dS before its sum over what a bias is shared by, dSink."""
        form, group = self.form, q.shape[1] // k.shape[1]
        ke, ve = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        live = torch.isfinite(kept)
        lse = torch.where(live, kept, 0.0)
        z, _ = self.logits(q, ke, vis, slice(0, k.shape[2]), form.prescale_bwd)
        p = torch.where(live & vis, self.exp(z - lse), 0.0)
        p16 = self.cast(p, "input")
        used = p16 if form.ds_from == "p_rounded" else p
        source = self.o_fp32 if form.delta_from == "o_fp32" else o.to(F32)
        delta = torch.where(live, (do.to(F32) * source).sum(-1, keepdim=True), 0.0)
        offset = -delta if dlse is None else dlse.to(F32).unsqueeze(-1) - delta
        offset = torch.where(live, offset, 0.0)
        if form.delta_from == "p":
            dp = self.narrowed(self.dot(do, ve.mT))
            delta = torch.where(live, (used * dp).sum(-1, keepdim=True), 0.0)
            offset = -delta if dlse is None else dlse.to(F32).unsqueeze(-1) - delta
            x = dp + offset
        elif form.dp_init == "minus_delta":
            x = self.narrowed(self.dot(do, ve.mT, -delta.expand(*q.shape[:3], k.shape[2]).contiguous()))
            x = x if dlse is None else x + dlse.to(F32).unsqueeze(-1)
        else:
            x = self.narrowed(self.dot(do, ve.mT)) + offset
        ds = torch.where(live & vis, used * x, 0.0)
        dt = self.cast(ds * self.sc if form.scale_ds == "before" else ds, "input")
        if form.s_dtype == "input" and form.scale_ds != "before":
            dt = self.cast(dt, "input")
        after = self.sc if form.scale_ds == "after" else torch.ones(())
        dt = dt * self.sc if form.scale_ds == "operand" else dt
        dq = self.over_keys(dt, ke, after)
        dk, dv = self.over_rows(dt, q, after, group), self.over_rows(p16, do, torch.ones(()), group)
        dsink = torch.zeros(q.shape[1])
        if self.sink is not None:
            weight = torch.where(live, self.exp((self.sink.to(F32) * self.unit)[:, None, None] - lse), 0.0)
            dsink = (weight * offset).sum((0, 2, 3))
        return delta.squeeze(-1), dq.to(self.dtype), dk, dv, ds, dsink

    def narrowed(self, dp: Tensor) -> Tensor:
        return self.cast(dp, "input") if self.form.dp_dtype == "input" else dp

    def over_keys(self, ds: Tensor, k: Tensor, after: Tensor) -> Tensor:
        """dQ: a product a tile of keys, added in fp32 and scaled, or scaled and added in the accumulator's dtype."""
        form, block = self.form, self.form.block_n or 16
        narrow = form.grad_accum != "fp32" and form.grad_accum_of != "dkv"
        total = torch.zeros(*ds.shape[:3], k.shape[-1])
        for start in range(0, k.shape[2], block):
            keys = slice(start, start + block)
            if narrow:
                total = self.cast(total + self.dot(ds[..., keys], k[:, :, keys]) * after, form.grad_accum)
            else:
                total = self.dot(ds[..., keys], k[:, :, keys], total)
        return total if narrow else total * after

    def over_rows(self, weights: Tensor, operand: Tensor, after: Tensor, group: int) -> Tensor:
        """dK or dV: a product a tile of rows and a head, and the sum over the heads of a group."""
        form = self.form
        narrow = form.grad_accum != "fp32" and form.grad_accum_of != "dq"
        heads = []
        for head in range(group):
            w, x = weights[:, head::group], operand[:, head::group]
            total = (
                heads[-1]
                if narrow and heads and form.gqa_partial == "fp32"
                else torch.zeros(*w.shape[:2], w.shape[3], x.shape[-1])
            )
            for start in range(0, w.shape[2], QUERY_TILE):
                rows = slice(start, start + QUERY_TILE)
                if narrow:
                    total = self.cast(total + self.dot(w[:, :, rows].mT, x[:, :, rows]) * after, form.grad_accum)
                else:
                    total = self.dot(w[:, :, rows].mT, x[:, :, rows], total)
            heads.append(total if narrow else total * after)
        if narrow and form.gqa_partial == "fp32":
            return heads[-1].to(self.dtype)
        if form.gqa_partial == "input":
            heads = [self.cast(head, "input") for head in heads]
        return torch.stack(heads).sum(0).to(self.dtype)

    def dbias(self, ds: Tensor, shape: tuple[int, ...]) -> Tensor:
        """DS summed in fp32 to the shape of a bias, in the input dtype."""
        ds = self.cast(ds, "input") if self.form.dbias_partial == "input" else ds
        return ds.sum_to_size(shape).to(self.dtype)
