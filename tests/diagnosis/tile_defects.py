"""Defects of what a kernel asks in some tiles alone, and of draws and distances, planted in `planted.Plain`."""

import torch

from flashverify_oracles import dropout, dropout_keep
from tests.diagnosis.mask_defects import FORWARD, SQUARE

TILE = 16


def whole(x):
    """Bool `[..., rows, keys]`: pairs of tiles all of whose pairs are in `x`; the last tile of keys must be full."""
    found = torch.zeros_like(x)
    for row in range(0, x.shape[-2], TILE):
        for key in range(0, x.shape[-1] - TILE + 1, TILE):
            tile = (..., slice(row, row + TILE), slice(key, key + TILE))
            found[tile] = x[tile].flatten(-2).all(-1)[..., None, None]
    return found


def narrower_where_cut(_self, i, j, left, right):
    declared = (i - j <= left) & (j - i <= right)
    return torch.where(whole(declared), declared, (i - j < left) & (j - i <= right))


def bits_before_the_diagonal(_self, problem, bits):
    rows, keys = problem.case.seq_q, problem.case.seq_k
    return bits | whole(torch.arange(keys) <= torch.arange(rows)[:, None])


def seven_rounds(_self, problem, drawn):
    (b, h, n, _), m = problem.case.shape_q, problem.case.seq_k
    rounds, dropout._ROUNDS = dropout._ROUNDS, 7
    try:
        return dropout_keep(
            seed=problem.dropout_seed,
            offset=problem.dropout_offset,
            p=problem.case.dropout,
            heads=h,
            sequence=torch.arange(b)[:, None].expand(b, n),
            row=torch.arange(n).expand(b, -1),
            key=torch.arange(m).expand(b, -1),
        ).double()
    finally:
        dropout._ROUNDS = rounds


def by_depth(self, problem):
    depth, keys = [], problem.case.seq_k
    for parent in problem.tree:
        depth.append(depth[parent] + 1 if parent >= 0 else 0)
    row = torch.tensor(depth)
    key = torch.cat([torch.arange(keys - len(row)), row + keys - len(row)])
    return (key - row[:, None])[None]


def late_by_a_tile():
    """Each tile's product is added behind the rescaling by the next one."""

    def output(self, o, z, v, lse):
        top = torch.full_like(z[..., :1], -torch.inf)
        acc, product = torch.zeros_like(o), torch.zeros_like(o)
        for key in range(0, z.shape[-1], self.tile):
            part = z[..., key : key + self.tile]
            new = torch.maximum(top, part.amax(-1, keepdim=True))
            pivot = torch.where(new == -torch.inf, 0.0, new)
            acc = acc * torch.where(top == -torch.inf, 0.0, (top - pivot).exp()) + product
            product = (part - pivot).exp() @ v[..., key : key + self.tile, :]
            top = new
        total = (lse.unsqueeze(-1) - torch.where(top == -torch.inf, 0.0, top)).exp()
        return (acc + product) / torch.where(total == 0, 1.0, total)

    return {"output": output}


def sink_in_the_maximum(self, o, z, v, lse):
    """Weights beside a sink that is far above them are 0."""
    gone = (self.pivot - z.amax(-1, keepdim=True)) > 104
    return torch.where(gone, 0.0, torch.softmax(z, -1) @ v)


def kept_sinks(self, sinks):
    self.pivot = sinks.double().view(1, -1, 1, 1)
    return sinks


DEFECTS = [
    (
        "sink-in-the-maximum-alone",
        FORWARD + "sink=yes",
        {
            "output": sink_in_the_maximum,
            "lse": lambda self, lse, without_sink: without_sink,
            "sinks": kept_sinks,
        },
    ),
    (
        "window-left-one-narrower",
        SQUARE.replace("seq_k=20", "seq_k=40") + "window=1,30",
        {"window": narrower_where_cut},
    ),
    ("bitmap-unasked-in-whole-tiles", SQUARE + "causal=top-left bitmap=128,3", {"pattern": bits_before_the_diagonal}),
    ("dropout-rounds", FORWARD + "dropout=0.5", {"kept": seven_rounds}),
    (
        "prefix-moves-the-diagonal",
        FORWARD + "causal=top-left prefix=2",
        {"shift": lambda s, p, n, m: int(p.prefix_lengths[0])},
    ),
    ("alibi-by-depth", FORWARD.replace("seq_k=7", "seq_k=5") + "tree=-1,0,0,1,1 alibi=yes", {"distance": by_depth}),
    ("alpha-late-by-a-tile", FORWARD.replace("seq_k=7", "seq_k=40") + "scale=2", late_by_a_tile()),
]
