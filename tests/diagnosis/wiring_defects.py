"""Defects of terms of the logits, heads, channels, pages, splits, packed sequences and dropout, planted in `planted.Plain`."""

import dataclasses
import math

import torch

from flashverify.numerics import Form
from tests.diagnosis.base_defects import hidden, weighed
from tests.diagnosis.mask_defects import FORWARD, SQUARE, TILES, after, given
from tests.diagnosis.packed_and_paged import entry_at, packed, paged
from tests.diagnosis.planted import LOG2E, Plain

BIAS = FORWARD + "bias=full batch=2 heads_q=4 heads_kv=2 "
ALIBI = FORWARD + "alibi=yes heads_q=4 heads_kv=2 "
SINK = FORWARD + "sink=yes heads_q=3 "
GROUPED = FORWARD + "sink=yes heads_q=4 heads_kv=2"
PACKED = FORWARD.replace("seq_q=5 seq_k=7", "seq_q=9 seq_k=14") + "packed=0,3,5,9/0,4,9,14 padding=dirt "
BIASED = PACKED + "bias=full"
PAGED = FORWARD.replace("seq_q=5 seq_k=7", "seq_q=1 seq_k=70") + "batch=2 page_size=32 "


def bias(change):
    return {"add_bias": lambda s, z, b: z + change(b)}


def cap(form):
    return {"cap": lambda s, z, c: form(z, c)}


def lse(change):
    return {"lse": lambda s, lse, without_sink: change(lse)}


def by_key(self, distance):
    """Slope times the number of the key."""
    return -torch.arange(distance.shape[-1]).double().expand_as(distance)


def in_buffers(self, problem):
    """Key - position, by the sizes of the buffers."""
    n, m = problem.case.seq_q, problem.case.seq_k
    return (torch.arange(m) - torch.arange(n)[:, None] - (m - n)).expand(problem.case.batch, n, m)


def of_tiles(chosen):
    """Tiles of 16 keys that count twice."""

    def change(self, z):
        number, count = torch.arange(z.shape[-1]) // 16, -(-z.shape[-1] // 16)
        return z + torch.where(chosen(number, count), math.log(2.0), 0.0).double()

    return weighed(change)


class OwnRows(packed()):
    """The bias of a packed row is that of its number inside its sequence."""

    supports = dataclasses.replace(Plain.supports, masks=("packed",))

    def forward(self, problem):
        cu = torch.tensor(problem.case.mask.packed.cu_q)
        row = torch.arange(problem.case.seq_q)
        first = cu[torch.bucketize(row, cu[1:-1], right=True)]
        return super().forward(dataclasses.replace(problem, bias=problem.bias[:, :, row - first]))


class Splits(Plain):
    """Two partial results."""

    def form(self, case):
        return Form(block_n=16, n_splits=2)


class FirstSplit(Splits):
    def drop_keys(self, see):
        return see & (torch.arange(see.shape[-1]) < see.shape[-1] // 2)


class LastSplit(Splits):
    def drop_keys(self, see):
        return see & (torch.arange(see.shape[-1]) >= see.shape[-1] // 2)


class Average(Splits):
    def output(self, o, z, v, lse):
        half = z.shape[-1] // 2
        return (z[..., :half].softmax(-1) @ v[..., :half, :] + z[..., half:].softmax(-1) @ v[..., half:, :]) / 2


def cut(name, channels):
    return given(**{name: lambda p: getattr(p, name) * (torch.arange(getattr(p, name).shape[-1]) < channels)})


WIDE = FORWARD.replace("dim_qk=8 dim_v=8", "dim_qk=80 dim_v=80")
MANY = FORWARD + "batch=2 heads_q=4 heads_kv=2 "
DEFECTS = [
    ("bias-of-kv-head", BIAS, bias(lambda b: b[:, torch.arange(b.shape[1]) // 2])),
    ("bias-of-first-member", BIAS, bias(lambda b: b[:, torch.arange(b.shape[1]) // 2 * 2])),
    ("alibi-slope-of-first-member", ALIBI, given(slopes=lambda p: p.slopes[torch.arange(len(p.slopes)) // 2 * 2])),
    ("sink-of-first-member", GROUPED, {"sinks": lambda s, x: x[torch.arange(len(x)) // 2 * 2]}),
    ("bias-of-next-head", BIAS, bias(lambda b: b.roll(-1, 1))),
    ("bias-of-first-sequence", BIAS, bias(lambda b: b[:1].expand_as(b))),
    ("bias-of-another-row", BIAS, bias(lambda b: after(b, 2))),
    ("bias-of-another-key", BIAS, bias(lambda b: after(b, 3))),
    ("bias-of-first-row", BIAS, bias(lambda b: b[:, :, :1].expand_as(b))),
    ("bias-transposed", SQUARE + "bias=full", bias(lambda b: b.mT if b.shape[2] == b.shape[3] else b)),
    (
        "bias-row-stride",
        BIAS,
        bias(
            lambda b: b.flatten(2)[
                ...,
                (torch.arange(b.shape[2])[:, None] * b.shape[2] + torch.arange(b.shape[3])).clamp(
                    max=b.shape[2] * b.shape[3] - 1
                ),
            ]
        ),
    ),
    ("bias-of-key-in-page", TILES + "bias=full", bias(lambda b: b[..., torch.arange(b.shape[3]) % 16])),
    ("bias-counted-in-sequence", BIASED, OwnRows),
    ("bias-twice", BIAS, bias(lambda b: 2 * b)),
    ("alibi-with-log2e", ALIBI, {"alibi": lambda s, x: x.abs() * LOG2E}),
    ("alibi-slope-of-first-head", ALIBI, given(slopes=lambda p: p.slopes[:1].expand_as(p.slopes))),
    ("alibi-slope-modulo", ALIBI, given(slopes=lambda p: p.slopes[torch.arange(len(p.slopes)) % 2])),
    ("alibi-of-the-key", ALIBI, {"alibi": by_key}),
    ("alibi-of-the-buffers", ALIBI + "causal=bottom-right klen=4", {"distance": in_buffers}),
    ("sink-of-next-head", SINK, {"sinks": lambda s, x: x.roll(-1)}),
    ("sink-several-times", SINK, {"sinks": lambda s, x: x + math.log(2.0)}),
    ("sink-scaled", SINK, {"sinks": lambda s, x: x / math.sqrt(8.0)}),
    ("sink-with-log2e", SINK, {"sinks": lambda s, x: x * LOG2E}),
    ("sink-sign", SINK, {"sinks": lambda s, x: -x}),
    ("softcap-clamps", FORWARD + "softcap=1", cap(lambda z, c: z.clamp(-c, c))),
    ("softcap-not-multiplied-back", FORWARD + "softcap=2", cap(lambda z, c: torch.tanh(z / c))),
    ("softcap-not-divided", FORWARD + "softcap=2", cap(lambda z, c: c * torch.tanh(z))),
    ("softcap-inverted", FORWARD + "softcap=2", cap(lambda z, c: torch.tanh(z * c) / c)),
    ("softcap-twice", FORWARD + "softcap=1", cap(lambda z, c: c * torch.tanh(torch.tanh(z / c)))),
    (
        "softcap-after-mask",
        FORWARD + "softcap=1 causal=top-left",
        hidden(lambda see, raw, z: torch.full_like(raw, -1.0)),
    ),
    ("channels-missing-in-the-products", WIDE, cut("q", 64)),
    ("channels-of-o-missing", WIDE, cut("v", 64)),
    ("values-of-other-keys", TILES, given(v=lambda p: after(p.v, 2))),
    ("scale-of-padded-dim", WIDE, {"scale": lambda s, p: 2.0 ** (-math.ceil(math.log2(p.case.dim_qk)) / 2)}),
    ("scale-of-all-heads", MANY, {"scale": lambda s, p: (p.case.dim_qk * p.case.heads_q) ** -0.5}),
    ("lse-of-another-row", MANY, lse(lambda x: after(x, 2))),
    ("lse-of-another-head", MANY, lse(lambda x: x[:, :1].expand_as(x))),
    ("lse-in-another-layout", MANY, lse(lambda x: x.transpose(1, 2).reshape(x.shape))),
    (
        "kv-batch-head-exchanged",
        MANY,
        given(k=lambda p: p.k.transpose(0, 1).reshape(p.k.shape), v=lambda p: p.v.transpose(0, 1).reshape(p.v.shape)),
    ),
    ("page-table-of-first-sequence", PAGED, entry_at(lambda width, b, key, size: key // size)),
    ("page-before", PAGED, entry_at(lambda width, b, key, size: b * width + max(key // size - 1, 0))),
    (
        "page-last-as-zeros",
        PAGED,
        paged(lambda table, b, key, size: -1 if key // size == table.shape[1] - 1 else table[b, key // size]),
    ),
    ("page-first", PAGED, entry_at(lambda width, b, key, size: b * width)),
    ("pages-of-another-size", PAGED, entry_at(lambda width, b, key, size: b * width + key // 64)),
    ("pages-in-order", PAGED, paged(lambda table, b, key, size: b * table.shape[1] + key // size)),
    ("page-table-stride", PAGED, entry_at(lambda width, b, key, size: key // size * 2 + b)),
    ("last-key-tile-twice", TILES, of_tiles(lambda number, count: number == count - 1)),
    ("first-key-tile-twice", TILES, of_tiles(lambda number, count: number == 0)),
    ("split-first-alone", TILES, FirstSplit),
    ("split-last-alone", TILES, LastSplit),
    ("merge-average", TILES, Average),
    (
        "packed-empty-sequence-has-a-key",
        PACKED.replace("0,4,9,14", "0,4,4,14"),
        packed(keys=lambda first, count, rows: (first, count.clamp(min=1))),
    ),
    (
        "packed-one-key-early",
        PACKED,
        packed(keys=lambda first, count, rows: ((first - 1).clamp(min=0), count + (first > 0).long())),
    ),
    ("packed-keys-of-first-sequence", PACKED, packed(keys=lambda first, count, rows: (0 * first, count))),
    (
        "packed-keys-of-next-sequence",
        PACKED,
        packed(keys=lambda first, count, rows: (after(first, 0), after(count, 0))),
    ),
    (
        "packed-as-many-keys-as-first",
        PACKED,
        packed(keys=lambda first, count, rows: (first, count[:1].expand_as(count))),
    ),
    ("packed-as-many-keys-as-rows", PACKED, packed(keys=lambda first, count, rows: (first, rows))),
    ("packed-keys-to-end-of-tile", PACKED, packed(keys=lambda first, count, rows: (first, -(-count // 16) * 16))),
    (
        "packed-first-row-to-the-one-before",
        PACKED,
        packed(sequence=lambda row, cu: torch.bucketize(row, cu + 1, right=True)),
    ),
    (
        "packed-last-row-to-the-next-one",
        PACKED,
        packed(sequence=lambda row, cu: torch.bucketize(row, cu - 1, right=True)),
    ),
    ("dropout-stream-of-first-head", MANY + "dropout=0.5", {"kept": lambda s, p, x: x[:, :1].expand_as(x)}),
    (
        "dropout-stream-of-kv-head",
        MANY + "dropout=0.5",
        {"kept": lambda s, p, x: x[:, torch.arange(x.shape[1]) // (p.case.heads_q // p.case.heads_kv)]},
    ),
    ("dropout-factor-wrong", MANY + "dropout=0.25", {"kept": lambda s, p, x: x * 0.75**2}),
]
