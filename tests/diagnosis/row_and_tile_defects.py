"""Defects of queries of other rows, heads that are dealt out, distances, levels of a tree and tiles without dropout, planted in `planted.Plain`."""

import torch

from tests.diagnosis.mask_defects import FORWARD, SQUARE, given
from tests.diagnosis.option_defects import RELATIVE, TREE
from tests.diagnosis.planted import Plain
from tests.diagnosis.wiring_defects import ALIBI, MANY

TILE = 16


def padded_in_front(p):
    """Row i of Q is the one that lies as many rows later as its sequence has padding."""
    lengths = [p.q.shape[2]] * p.q.shape[0] if p.query_lengths is None else p.query_lengths.tolist()
    return torch.stack([x.roll(length - x.shape[1], 1) for x, length in zip(p.q, lengths, strict=True)])


def of_the_first_device(p):
    """The slopes of heads that are dealt out to two devices, each of which counts its own from 0."""
    half = len(p.slopes) // 2
    return torch.cat([p.slopes[:half], p.slopes[: len(p.slopes) - half]])


def by_levels(self, parents, node):
    """The nodes before it of a smaller depth."""
    depth = []
    for parent in parents:
        depth.append(depth[parent] + 1 if parent >= 0 else 0)
    return [node, *Plain.ancestors(self, parents, node), *(x for x in range(node) if depth[x] < depth[node])]


def from_the_end(distance):
    """A distance key - row from the bottom-right diagonal."""
    return distance - (distance.shape[-1] - distance.shape[-2])


def undropped(in_tiles):
    """Pairs are kept in whole tiles of 16 keys, or in the last one, which is no whole one."""

    def kept(self, problem, keep):
        whole = torch.arange(keep.shape[-1]) // TILE < keep.shape[-1] // TILE
        return torch.where(in_tiles(whole), 1.0, keep)

    return {"kept": kept}


class BehindTheLastKey(Plain):
    """Tiles of 16 keys behind the last one, before the first row of a tile of 16, are seen; logits and values are 0."""

    @staticmethod
    def more(lse, keys):
        first = torch.arange(lse.shape[-1]) // TILE * TILE
        count = ((first + 1) // TILE * TILE - keys).clamp(min=0).double()
        return torch.where(torch.isfinite(lse), torch.logaddexp(lse, count.log()), lse)

    def output(self, o, z, v, lse):
        self.shifted = self.more(lse, z.shape[-1])
        return o * (lse - self.shifted).nan_to_num(0.0, 0.0, 0.0).exp().unsqueeze(-1)

    def lse(self, lse, without_sink):
        return self.shifted


class ValuesFromTheFirstKey(Plain):
    """The walk of 16 rows begins at the first of 16 keys that its first row sees; V is read from key 0 on."""

    def forward(self, problem):
        self.left, self.end = problem.window[0], problem.case.seq_k - problem.case.seq_q
        return super().forward(problem)

    def output(self, o, z, v, lse):
        rows = []
        for row in range(z.shape[2]):
            begin = max(row // TILE * TILE + self.end - self.left, 0) // TILE * TILE
            p = (z[:, :, row] - lse[:, :, row, None]).exp().unsqueeze(2)
            rows.append(p[..., begin:] @ v[:, :, : v.shape[2] - begin])
        return torch.cat(rows, 2)


DEFECTS = [
    (
        "values-from-the-first-key",
        FORWARD.replace("seq_q=5 seq_k=7", "seq_q=40 seq_k=40") + "window=4,0 causal=bottom-right",
        ValuesFromTheFirstKey,
    ),
    ("queries-of-rows-of-their-head", FORWARD, given(q=lambda p: p.q[:, :, :1].expand_as(p.q))),
    ("queries-of-rows-of-their-head", FORWARD + "qlen=3 padding=dirt", given(q=padded_in_front)),
    ("head-clamped", MANY, {"kv_head": lambda s, h, group, heads_kv: min(h, heads_kv - 1)}),
    ("slopes-of-other-rows", ALIBI.replace("kv=2", "kv=4"), given(slopes=of_the_first_device)),
    ("tree-by-levels", TREE, {"ancestors": by_levels}),
    ("alibi-from-the-end", ALIBI, {"alibi": lambda s, x: from_the_end(-x).abs()}),
    (
        "relative-bias-from-the-end",
        RELATIVE,
        {"relative_distance": lambda s, x, reach: from_the_end(x).clamp(-reach, reach)},
    ),
    ("dropout-drops-nothing", SQUARE + "dropout=0.5", undropped(torch.ones_like)),
    ("dropout-ignored-in-whole-tiles", SQUARE + "dropout=0.5", undropped(lambda whole: whole)),
    ("dropout-ignored-in-masked-tiles", SQUARE + "dropout=0.5", undropped(torch.logical_not)),
    (
        "keys-behind-the-last-weigh-one",
        FORWARD.replace("seq_q=5 seq_k=7", "seq_q=20 seq_k=4") + "causal=top-left",
        BehindTheLastKey,
    ),
]
