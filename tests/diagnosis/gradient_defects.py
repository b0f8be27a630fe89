"""Defects of the backward, planted in `stepwise.Stepwise`: the name that each must get, a case, the change."""

import math

import torch

from flashverify_oracles import dropout_keep
from tests.diagnosis.planted import Plain
from tests.diagnosis.stepwise import assign, stepwise

CASE = "fv1 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32 "
CAPPED = CASE + "softcap=1 "
GROUPS = CASE + "heads_q=6 heads_kv=2 "
MANY = CASE + "batch=2 heads_q=4 heads_kv=2 "
WIDE = CASE.replace("dim_qk=8 dim_v=8", "dim_qk=40 dim_v=40")
TILES = CASE.replace("seq_q=5 seq_k=7", "seq_q=37 seq_k=35")
DLSE = CASE + "dlse=yes "
SINK = CASE + "sink=yes heads_q=2 batch=2 "
LOG2E = 1 / math.log(2)


def slope(change):
    """The derivative of the softcap, a function of the names, in place of its own."""
    return {"at_slope": assign(inner=lambda s: s.ds * change(s))}


def rows(**changes):
    return {"at_rows": assign(**changes)}


def ds(change):
    return {"at_ds": assign(ds=change)}


def lse(change):
    return {"at_start": assign(lse=change)}


def at_heads(change):
    """A change of dK and dV per query head `[B, Hq, Sk, D]`, given the size of the group."""
    return {"at_heads": assign(dk=lambda s: change(s.dk, s.group), dv=lambda s: change(s.dv, s.group))}


def at_end(*names, by):
    return {"at_end": assign(**{name: lambda s, name=name: by(getattr(s, name), s) for name in names})}


def sink_weight(change):
    return {"at_sink": assign(sink_weight=change)}


def capped_slope(s):
    return 1 - torch.tanh(s.raw / s.cap) ** 2


def lost(which):
    return lambda x, group: x * (torch.arange(x.shape[1]) % group != which).view(-1, 1, 1)


def tile_sums(x, size):
    """Running sums over tiles of rows."""
    out = x.clone()
    for start in range(size, x.shape[2], size):
        stop = min(start + size, x.shape[2])
        out[:, :, start:stop] += out[:, :, start - size : stop - size]
    return out


def interleaved(x, group):
    return x.unflatten(1, (group, -1)).sum(1)


def redrawn(s):
    p = s.problem
    b, h, n, m = s.raw.shape
    drawn = dropout_keep(
        seed=p.dropout_seed,
        offset=p.dropout_offset + 1,
        p=p.case.dropout,
        heads=h,
        sequence=torch.arange(b)[:, None].expand(b, n),
        row=torch.arange(n).expand(b, -1),
        key=torch.arange(m).expand(b, -1),
    )
    return drawn.double() / (1 - p.case.dropout)


def without_sink(s):
    return torch.where(s.some, s.z.logsumexp(-1), 0.0)


def empty_weigh(s):
    keys = torch.arange(s.p.shape[3]) < s.problem.key_lengths.view(-1, 1, 1, 1)
    s.p = s.weights = torch.where(s.some.unsqueeze(-1), s.p, keys.double())


def overflowing(s):
    keys = torch.tensor(s.z.shape[-1]) if s.problem.key_lengths is None else s.problem.key_lengths.view(-1, 1, 1)
    over = (s.lse < -88.8) & (keys % 16 != 0)
    s.dq = torch.where(over.unsqueeze(-1), math.nan, s.dq)


def empty_nan(s):
    s.dq = torch.where(s.some.unsqueeze(-1), s.dq, math.nan)


def largest(s):
    """1 at the largest logit of each row."""
    return torch.nn.functional.one_hot(s.z.argmax(-1), s.z.shape[-1]).double()


def early(s):
    """Keys before the last tile of 32."""
    return torch.arange(s.z.shape[-1]) < (s.z.shape[-1] - 1) // 32 * 32


def across(x):
    return x.unsqueeze(-1)


def strided(name, strides):
    """A tensor that is read by other strides, a function of the tensor."""

    def read(s):
        x = getattr(s.problem, name)
        setattr(s, name, x.as_strided(x.shape, strides(x)).double())

    return {"at_start": read}


def strided_after_delta(s):
    """The kernels of the gradients read dO as if it were contiguous, that of delta does not."""
    s.do = s.problem.do.as_strided(s.do.shape, dense(s.do)).double()
    s.dp = (s.do @ s.v.mT) * s.keep


def dense(x):
    return torch.empty(x.shape).stride()


def stored(place):
    """DS that is stored in other rows: for each the number of the row in whose place it is; what is stored later stays."""

    def store(s):
        memory = torch.zeros_like(s.ds)
        for row in range(s.ds.shape[2]):
            if 0 <= place(row, s) < s.ds.shape[2]:
                memory[:, :, place(row, s)] = s.ds[:, :, row]
        s.dbias = memory

    return {"at_end": store}


def stored_at_kv_heads(s):
    memory = torch.zeros_like(s.ds)
    for head in range(s.ds.shape[1]):
        memory[:, head // s.group] = s.ds[:, head]
    s.dbias = memory


def live_before(s):
    """Draws of a key by its place among the keys of live blocks."""
    blocks = s.problem.case.mask.blocks
    live = s.problem.blocks.repeat_interleave(blocks.rows, 2).repeat_interleave(blocks.keys, 3)
    place = (live[:, :, : s.raw.shape[2], : s.raw.shape[3]].long().cumsum(3) - 1).clamp(min=0).expand_as(s.keep)
    return s.keep.gather(3, place)


def among_visible(s):
    """Draws of a row by its place among the rows that see the key."""
    return s.keep.gather(2, (s.see.long().cumsum(2) - 1).clamp(min=0))


def by_packed_rows(s):
    """Draws of a row by its number among the rows of all heads of its group."""
    (b, h, n, m), p = s.raw.shape, s.problem
    found = []
    for head in range(h):
        row = torch.arange(n) * s.group + head % s.group
        drawn = dropout_keep(
            seed=p.dropout_seed,
            offset=p.dropout_offset,
            p=p.case.dropout,
            heads=h,
            sequence=torch.arange(b)[:, None].expand(b, n),
            row=row.expand(b, n),
            key=torch.arange(m).expand(b, m),
        )
        found.append(drawn[:, head : head + 1].double())
    return torch.cat(found, 1) / (1 - p.case.dropout)


def of_the_last_visit(s):
    """DQ of the last of two ranks, with rows and keys one after the other, that has a key of the row."""
    rows, keys = (torch.arange(n) >= n // 2 for n in s.raw.shape[2:])
    step = (rows[:, None] != keys).long()
    last = torch.where(s.see, step, -1).amax(-1, keepdim=True)
    s.dq = s.scale * torch.where(step == last, s.inner, 0.0) @ s.k


def of_the_room(s):
    """DQ of a kernel that is handed no key lengths: padded keys take part, and the room for keys aligns the mask."""
    rows, keys = s.raw.shape[2:]
    see = torch.arange(keys) <= torch.arange(rows)[:, None] + keys - rows
    p = torch.where(see, (s.raw - across(s.lse)).exp(), 0.0)
    s.dq = s.scale * (p * (s.do @ s.v.mT + across(s.dlse - s.delta))) @ s.k


def other_draws(change):
    return {"at_ds": assign(ds=lambda s: s.p * ((s.do @ s.v.mT) * change(s) + across(s.dlse - s.delta)))}


DEFECTS = [
    (
        "running-sum-without-gradient",
        TILES + "dlse=yes",
        ds(lambda s: torch.where(early(s), s.p * (s.dp - across(s.delta)), s.ds)),
    ),
    ("running-sum-without-gradient", TILES + "dlse=yes", ds(lambda s: torch.where(early(s), s.p * s.dp, s.ds))),
    (
        "running-sum-without-gradient",
        TILES + "causal=top-left",
        {
            "at_ds": assign(ds=lambda s: torch.where(early(s), s.p * across(s.dlse - s.delta), s.ds)),
            "at_weights": assign(weights=lambda s: torch.where(early(s), 0.0, s.p)),
        },
    ),
    ("maximum-differentiated", DLSE, ds(lambda s: s.ds - across(s.dlse) * largest(s))),
    ("maximum-differentiated", CASE, ds(lambda s: s.ds + across(s.delta) * largest(s))),
    ("term-by-other-weights", DLSE, ds(lambda s: s.p * (s.dp - across(s.delta)) + across(s.dlse) * largest(s))),
    ("term-by-other-weights", CASE + "causal=top-left", ds(lambda s: s.p * (s.dp - s.p * across(s.delta)))),
    ("term-by-other-weights", CASE + "dropout=0.5", ds(lambda s: s.p * (s.keep * s.dp - across(s.delta)))),
    ("ds-centred", DLSE, ds(lambda s: s.ds - s.ds.mean(-1, keepdim=True))),
    ("backward-strides", MANY + "do=transposed", strided("do", dense)),
    ("backward-strides", MANY + "do=expanded", strided("do", lambda x: (*x.stride()[:3], 1))),
    ("backward-strides", MANY + "strided=yes dlse=yes", strided("dlse", dense)),
    ("ds-stored-elsewhere", MANY + "bias=full", stored(lambda row, s: row + 1)),
    ("ds-stored-elsewhere", CASE.replace("seq_q=5", "seq_q=20") + "bias=full", stored(lambda row, s: row % 16)),
    ("ds-stored-elsewhere", MANY + "bias=full", {"at_end": stored_at_kv_heads}),
    (
        "dropout-counted-along-a-walk",
        "fv1 seq_q=20 seq_k=56 dim_qk=8 dim_v=8 dtype=fp32 blocks=16,16,128,4 dropout=0.5",
        other_draws(live_before),
    ),
    (
        "dropout-counted-along-a-walk",
        TILES + "causal=top-left dropout=0.5",
        {"at_heads": assign(dv=lambda s: (s.p * among_visible(s)).mT @ s.do)},
    ),
    (
        "dropout-counted-along-a-walk",
        CASE.replace("seq_k=7", "seq_k=8") + "dropout=0.5",
        other_draws(lambda s: s.keep[..., torch.arange(s.keep.shape[3]) ^ 1] if s.keep.shape[3] % 2 == 0 else s.keep),
    ),
    ("dropout-counted-along-a-walk", GROUPS + "dropout=0.5", other_draws(by_packed_rows)),
    ("dropout-counted-along-a-walk", CASE + "dropout=0.5", other_draws(lambda s: s.keep.flip(3))),
    ("key-lengths-ignored", CASE + "klen=4 causal=bottom-right padding=dirt", {"at_heads": of_the_room}),
    ("ring-visits-not-added", CASE + "causal=top-left", {"at_heads": of_the_last_visit}),
    ("softcap-slope-twice", CAPPED, slope(lambda s: (1 - torch.tanh(s.raw / s.cap) ** 2) ** 2)),
    ("softcap-slope-of-capped", CAPPED, slope(lambda s: 1 - torch.tanh(torch.tanh(s.raw / s.cap)) ** 2)),
    (
        "softcap-slope-not-divided",
        CASE + "softcap=3",
        slope(lambda s: 1 - (s.cap * torch.tanh(s.raw / s.cap)) ** 2),
    ),
    ("softcap-slope-not-squared", CAPPED, slope(lambda s: 1 - torch.tanh(s.raw / s.cap))),
    ("softcap-slope-sign", CAPPED, slope(lambda s: 1 + torch.tanh(s.raw / s.cap) ** 2)),
    ("softcap-slope-times-cap", CASE + "softcap=3", slope(lambda s: s.cap * (1 - torch.tanh(s.raw / s.cap) ** 2))),
    ("softcap-slope-of-products", CAPPED, slope(lambda s: 1 - torch.tanh(s.raw / s.scale / s.cap) ** 2)),
    (
        "softcap-slope-after-bias",
        CAPPED + "bias=full",
        slope(lambda s: 1 - (torch.where(s.see, s.z, 0.0) / s.cap) ** 2),
    ),
    ("softcap-slope-in-another-base", CAPPED, slope(lambda s: 1 - torch.tanh(s.raw * LOG2E / s.cap) ** 2)),
    (
        "softcap-slope-in-bias-gradient",
        CAPPED + "bias=full",
        {"at_end": assign(dbias=lambda s: s.dbias * (1 - torch.tanh(s.raw / s.cap) ** 2))},
    ),
    ("delta-missing", CASE, rows(delta=lambda s: 0 * s.delta)),
    ("delta-of-next-row", CASE, rows(delta=lambda s: torch.cat([s.delta[:, :, 1:], 0 * s.delta[:, :, :1]], 2))),
    ("backward-delta-of-first-head", MANY, rows(delta=lambda s: s.delta[:, :1].expand_as(s.delta))),
    ("delta-twice", CASE, rows(delta=lambda s: 2 * s.delta)),
    ("delta-halved", CASE, rows(delta=lambda s: s.delta / 2)),
    ("delta-scaled", CASE, rows(delta=lambda s: s.delta * s.scale)),
    ("delta-averaged-over-channels", CASE, rows(delta=lambda s: s.delta / s.v.shape[3])),
    ("delta-of-some-channels", WIDE, rows(delta=lambda s: (s.do * s.o)[..., :32].sum(-1))),
    (
        "delta-not-weighted",
        CASE,
        ds(lambda s: torch.where(s.see, s.p * s.dp + (s.dlse - s.delta).unsqueeze(-1), 0.0)),
    ),
    ("delta-without-dropout", CASE + "dropout=0.5", rows(delta=lambda s: (s.p * (s.do @ s.v.mT)).sum(-1))),
    ("delta-of-previous-row", CASE, rows(delta=lambda s: s.delta.roll(1, 2))),
    ("delta-of-first-row", CASE, rows(delta=lambda s: s.delta[:, :, :1].expand_as(s.delta))),
    ("backward-o-of-next-head", MANY, rows(delta=lambda s: (s.do * s.o.roll(-1, 1)).sum(-1))),
    ("backward-o-of-first-sequence", MANY, rows(delta=lambda s: (s.do * s.o[:1]).sum(-1))),
    ("backward-o-of-previous-row", CASE, rows(delta=lambda s: (s.do * s.o.roll(1, 2)).sum(-1))),
    ("dlse-twice", DLSE, rows(dlse=lambda s: 2 * s.dlse)),
    ("dlse-scaled", DLSE, rows(dlse=lambda s: s.dlse * s.scale)),
    ("dlse-of-next-row", DLSE, rows(dlse=lambda s: s.dlse.roll(-1, 2))),
    ("dlse-of-first-head", DLSE + "heads_q=2", rows(dlse=lambda s: s.dlse[:, :1].expand_as(s.dlse))),
    ("ds-without-weights", CASE, ds(lambda s: torch.where(s.see, s.dp + (s.dlse - s.delta).unsqueeze(-1), 0.0))),
    ("ds-weighted-twice", CASE, ds(lambda s: s.p * s.ds)),
    ("softmax-gradient-diagonal", CASE, ds(lambda s: s.p * (1 - s.p) * s.dp)),
    ("ds-is-p", CASE, ds(lambda s: s.p)),
    ("ds-is-dp", DLSE, ds(lambda s: s.p * s.dp)),
    ("dv-of-ds", CASE, {"at_heads": assign(dv=lambda s: s.ds.mT @ s.do)}),
    ("dv-of-o", CASE, {"at_heads": assign(dv=lambda s: (s.p * s.keep).mT @ s.o)}),
    ("dp-of-o", CASE, rows(dp=lambda s: (s.o @ s.v.mT) * s.keep)),
    ("backward-operand-exchanged", CASE, {"at_heads": assign(dq=lambda s: s.scale * (s.inner @ s.v))}),
    ("dp-of-some-channels", WIDE, rows(dp=lambda s: (s.do[..., :32] @ s.v[..., :32].mT) * s.keep)),
    (
        "dp-of-some-channels",
        CASE.replace("dim_v=8", "dim_v=24"),
        rows(dp=lambda s: (s.do[..., : s.q.shape[3]] @ s.v[..., : s.q.shape[3]].mT) * s.keep),
    ),
    (
        "backward-logits-of-some-channels",
        WIDE,
        {"at_start": assign(z=lambda s: s.scale * (s.q[..., :32] @ s.k[..., :32].mT))},
    ),
    ("backward-not-normalised", CASE, lse(lambda s: s.z.amax(-1))),
    ("backward-without-lse", CASE, lse(lambda s: 0 * s.lse)),
    ("backward-lse-in-base-2", CASE, lse(lambda s: s.lse * LOG2E)),
    ("backward-lse-without-sink", CASE + "sink=yes", lse(without_sink)),
    ("backward-lse-of-previous-row", CASE, lse(lambda s: s.lse.roll(1, 2))),
    ("backward-lse-of-first-row", CASE, lse(lambda s: s.lse[:, :, :1].expand_as(s.lse))),
    ("group-mean", GROUPS, at_heads(lambda x, group: x / group)),
    ("group-member-lost", GROUPS, at_heads(lambda x, group: lost(group - 1)(x, group))),
    ("group-member-twice", GROUPS, at_heads(lambda x, group: x + (x - lost(0)(x, group)))),
    ("group-sum-interleaved", GROUPS, at_heads(interleaved)),
    ("gradient-not-reset-over-heads", CASE + "heads_q=3 heads_kv=3", at_end("dk", "dv", by=lambda x, s: x.cumsum(1))),
    ("gradient-not-reset-over-tiles", TILES, at_end("dq", by=lambda x, s: tile_sums(x, 16))),
    ("gradient-stored-at-another-head", MANY, at_end("dq", by=lambda x, s: x.roll(1, 1))),
    ("gradient-stored-at-another-row", CASE, at_end("dk", by=lambda x, s: x.roll(-1, 2))),
    ("gradient-not-reset-over-sequences", CASE + "batch=3", at_end("dv", by=lambda x, s: x.cumsum(0))),
    ("gradient-stored-at-another-sequence", MANY, at_end("dv", by=lambda x, s: x.roll(1, 0))),
    (
        "gradient-layout-exchanged",
        MANY,
        at_end("dq", by=lambda x, s: x.transpose(1, 2).contiguous().view_as(x)),
    ),
    ("dk-dv-exchanged", CASE, {"at_end": assign(dk=lambda s: s.dv, dv=lambda s: s.dk)}),
    ("dv-weighted-twice", CASE, {"at_heads": assign(dv=lambda s: (s.p**2 * s.keep).mT @ s.do)}),
    ("dv-scaled", CASE, at_end("dv", by=lambda x, s: x * s.scale)),
    ("gradient-halved", CASE, at_end("dk", by=lambda x, s: x / 2)),
    (
        "gradient-with-default-scale",
        CASE + "scale=0.7",
        at_end("dk", by=lambda x, s: x / 0.7 / math.sqrt(s.q.shape[3])),
    ),
    ("gradient-with-root-of-scale", CASE, at_end("dq", by=lambda x, s: x / math.sqrt(s.scale))),
    ("gradient-left-at-zero", CASE, at_end("dk", by=lambda x, s: 0 * x)),
    ("softcap-slope-in-dv", CAPPED, {"at_heads": assign(dv=lambda s: (s.p * s.keep * capped_slope(s)).mT @ s.do)}),
    ("dsink-by-lse-of-keys", SINK, sink_weight(lambda s: s.sink_weight / (1 - s.sink_weight))),
    ("dsink-without-weight", SINK, sink_weight(lambda s: s.some.double())),
    ("backward-without-lse", SINK, sink_weight(lambda s: s.sink.exp() * s.some)),
    ("dsink-weight-in-another-base", SINK, sink_weight(lambda s: (s.sink * LOG2E - s.lse).exp() * s.some)),
    ("dsink-times-a-factor", SINK, at_end("dsink", by=lambda x, s: x * LOG2E)),
    ("dsink-last-sequence", SINK, sink_weight(lambda s: s.sink_weight * (torch.arange(2) == 1).view(-1, 1, 1))),
    (
        "dsink-of-some-rows",
        TILES + "sink=yes",
        sink_weight(lambda s: s.sink_weight * (torch.arange(s.lse.shape[2]) < s.lse.shape[2] // 16 * 16)),
    ),
    ("dsink-of-next-head", SINK, at_end("dsink", by=lambda x, s: x.roll(-1))),
    ("dbias-mean", MANY + "bias=head", at_end("dbias", by=lambda x, s: x / (s.p.shape[0] if x.shape[0] == 1 else 1))),
    (
        "dbias-summed-over-one-axis",
        MANY + "bias=shared",
        {"at_end": assign(dbias=lambda s: s.ds[:1].sum((0, 1), keepdim=True))},
    ),
    ("empty-rows-nan-in-backward", CASE + "causal=bottom-right klen=2", {"at_end": empty_nan}),
    ("empty-rows-weigh-in-backward", CASE + "causal=bottom-right klen=2", {"at_weights": empty_weigh}),
    ("padded-keys-overflow-in-backward", CASE + "regime=negative scale=8", {"at_end": overflowing}),
    (
        "dropout-factor-wrong",
        CASE + "dropout=0.25",
        {"kept": lambda self, p, keep: keep * 0.75**2},
    ),
    ("dropout-of-another-call", CASE + "dropout=0.5", {"at_start": assign(keep=redrawn)}),
    ("dropout-missing-in-dp", CASE + "dropout=0.5", rows(dp=lambda s: (s.do @ s.v.mT) / (1 - s.problem.case.dropout))),
    ("backward-strides", MANY + "do=transposed", {"at_rows": strided_after_delta}),
]


def planted_gradient(defect):
    """The subject of a defect of `DEFECTS`."""
    own = {name: defect[name] for name in defect if hasattr(Plain, name)}
    subject = stepwise(**{name: change for name, change in defect.items() if name not in own})
    for name, method in own.items():
        setattr(type(subject), name, method)
    return subject
