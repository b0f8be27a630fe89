"""Attention in float64 as a subject, with one method for everything that a defect changes; it shares no code with the diagnosis."""

import functools
import itertools
import math

import torch

from flashverify.numerics import Form
from flashverify.subjects.interface import Contract, Forward, Gradients, Supports
from flashverify_oracles import dropout_keep
from tests.diagnosis.planted_choices import Choices

LOG2E = 1.0 / math.log(2.0)
form_of = functools.cache(lambda tile: Form(block_n=tile))
"""Asked for at every place of every case."""


class Plain(Choices):
    """Right as it stands."""

    name = "planted"
    contract = Contract(lse_base="e")
    supports = Supports(
        masks=("causal", "window", "key_lengths", "query_lengths", "tree", "blocks", "bitmap", "prefix_lengths"),
        logits=("softcap", "alibi", "bias", "sink", "relative_bias"),
        dropout=True,
        empty=True,
        scales=("positive", "zero", "negative"),
        entry_trees=True,
        dlse=True,
    )
    tile = 16
    delta_factor = 1.0

    def form(self, case):
        return form_of(self.tile)

    def device(self):
        return "cpu"

    def evidence(self):
        return "cpu"

    def see(self, problem):
        case = problem.case
        b, h, n, m = *case.shape_q[:3], case.seq_k
        i, j = torch.arange(n)[:, None], torch.arange(m)[None, :]
        see = torch.ones(b, h, n, m, dtype=torch.bool)
        for batch in range(b):
            queries = n if problem.query_lengths is None else int(problem.query_lengths[batch])
            keys = m if problem.key_lengths is None else int(problem.key_lengths[batch])
            see[batch] &= (i < queries) & (j < self.keys(keys))
            if problem.causal:
                early = self.causal(i + self.shift(problem, queries, keys), j)
                if problem.prefix_lengths is not None:
                    early = early | self.prefix(j, problem.prefix_lengths.tolist(), batch)
                see[batch] &= early
            if problem.window:
                see[batch] &= self.window(i + self.window_shift(problem, queries, keys), j, *problem.window)
        if problem.tree is not None:
            nodes = torch.zeros(b, 1, n, n, dtype=torch.bool)
            for batch, node in itertools.product(range(b), range(n)):
                nodes[batch, 0, node, list(self.ancestors(self.parents(problem.tree, batch), node))] = True
            see[..., m - n :] &= nodes
        if problem.bitmap is not None:
            see &= self.pattern(problem, problem.bitmap)
        if problem.blocks is not None:
            blocks = case.mask.blocks
            live = self.live(problem, problem.blocks)
            see &= live.repeat_interleave(blocks.rows, 2).repeat_interleave(blocks.keys, 3)[:, :, :n, :m]
        return self.drop_keys(see)

    def forward(self, problem):
        case = problem.case
        b, h, n, m = *case.shape_q[:3], case.seq_k
        group = h // case.heads_kv
        heads = torch.tensor([self.kv_head(x, group, case.heads_kv) for x in range(h)])
        q, k, v = (torch.nan_to_num(x.double(), 0.0, 0.0, 0.0) for x in (problem.q, problem.k, problem.v))
        k, v = k[:, heads], v[:, heads]
        raw = self.scale(problem) * (q @ k.mT)
        z = raw if problem.softcap is None else self.cap(raw, problem.softcap)
        if problem.bias is not None:
            z = self.add_bias(z, torch.nan_to_num(problem.bias.double(), 0.0, 0.0, 0.0))
        if problem.slopes is not None:
            slopes = self.alibi_slopes(problem.slopes.double())[:, None, None]
            z = z - slopes * self.alibi(-self.distance(problem).double())[:, None]
        if problem.relative_bias is not None:
            z = z + self.table(problem.relative_bias.double())[:, self.buckets(problem)].transpose(0, 1)
        see = self.see(problem)
        z = z.masked_fill(~see, -torch.inf)
        some = see.any(-1)
        sink = None if problem.sink is None else self.sinks(problem.sink).double().view(1, -1, 1)
        total = z.logsumexp(-1) if m else torch.full((b, h, n), -torch.inf, dtype=torch.float64)
        whole = total if sink is None else torch.where(some, torch.logaddexp(total, sink), total)
        p = torch.where(see, (z - torch.where(some, whole, 0.0).unsqueeze(-1)).exp(), 0.0)
        keep = torch.ones_like(p)
        if case.dropout:
            row, key = torch.arange(n).expand(b, -1), torch.arange(m).expand(b, -1)
            drawn = dropout_keep(
                seed=problem.dropout_seed,
                offset=problem.dropout_offset,
                p=case.dropout,
                heads=h,
                sequence=torch.arange(b)[:, None].expand(b, n),
                row=row,
                key=key,
            )
            keep = self.kept(problem, drawn.double()) / (1 - case.dropout)
        o = self.output((p * keep) @ v, z, v, whole)
        lse = self.lse(whole, total)
        saved = (q, k, v, raw, z, see, keep, group)
        return Forward(o.to(problem.q.dtype), lse.float(), saved)

    def distance(self, problem):
        """Key - position, `[B, Sq, Sk]`."""
        (b, _, n, _), m = problem.case.shape_q, problem.case.seq_k
        queries = [n] * b if problem.query_lengths is None else problem.query_lengths.tolist()
        keys = [m] * b if problem.key_lengths is None else problem.key_lengths.tolist()
        shift = (
            torch.tensor(keys) - torch.tensor(queries) if problem.causal == "bottom-right" else torch.zeros(b).long()
        )
        return torch.arange(m) - torch.arange(n)[:, None] - shift[:, None, None]

    def buckets(self, problem):
        reach = len(problem.distance_buckets) // 2
        return problem.distance_buckets.long()[self.relative_distance(self.distance(problem), reach) + reach]

    def backward(self, problem, forward):
        q, k, v, raw, z, see, keep, group = forward.saved
        do = torch.nan_to_num(problem.do.double(), 0.0, 0.0, 0.0)
        lse = self.backward_lse(forward.lse.double())
        some = see.any(-1)
        if self.backward_see(see) is not see:
            see = self.backward_see(see) & some.unsqueeze(-1)
            z = raw
        p = torch.where(see, (z - torch.where(some, lse, 0.0).unsqueeze(-1)).exp(), 0.0)
        delta = torch.where(some, (do * forward.o.double()).sum(-1), 0.0)
        offset = -delta * self.delta_factor
        if problem.dlse is not None:
            offset = offset + torch.where(some, torch.nan_to_num(problem.dlse.double(), 0.0, 0.0, 0.0), 0.0)
        ds = p * ((do @ v.mT) * keep + offset.unsqueeze(-1))
        inner = ds if problem.softcap is None else ds * self.cap_slope(raw, problem.softcap)
        scale, dtype = self.scale(problem), problem.q.dtype
        dq = scale * self.dq_factor(problem) * (inner @ k)
        dk = self.group_sum(scale * self.dk_factor(problem) * (inner.mT @ q), group)
        dv = self.group_sum((p * keep).mT @ do, group)
        dbias = dsink = drelative_bias = None
        if problem.relative_bias is not None:
            count = problem.relative_bias.shape[1]
            drelative_bias = self.table_gradient(ds, self.buckets(problem)[:, None], count).float()
        if problem.bias is not None:
            shared = [axis for axis in range(2) if problem.bias.shape[axis] == 1]
            dbias = ds.sum(shared, keepdim=True) if shared else ds
            dbias = dbias.to(dtype)
        if problem.sink is not None:
            sink = self.sinks(problem.sink).double().view(1, -1, 1)
            dsink = torch.where(some, (sink - lse).exp() * offset, 0.0).sum((0, 2)).float()
        learned = {"dbias": dbias, "dsink": dsink, "drelative_bias": drelative_bias}
        return Gradients(dq.to(dtype), dk.to(dtype), dv.to(dtype), delta.float(), **learned)

    def backward_lse(self, lse):
        return lse


def planted(**methods):
    """`Plain` with some methods or numbers replaced."""
    return type("Planted", (Plain,), methods)()
