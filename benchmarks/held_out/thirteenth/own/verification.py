"""The verification of a drafted tree in plain torch, written for this set: the keys before the nodes and the nodes apart, then merged; fp64.

`[B, H, S, D]`, LSE in base 2, forward only. It takes trees and ALiBi, whose distances count rows.
"""

import math

import torch

from flashverify import Contract, Supports, subject


def ancestors_of(parents):
    """`[nodes, nodes]` bool: a node and its ancestors, found by squaring the relation to the parent."""
    nodes = len(parents)
    see = torch.eye(nodes)
    for node, parent in enumerate(parents):
        if parent >= 0:
            see[node, parent] = 1.0
    for _ in range(nodes.bit_length()):
        see = ((see @ see) > 0).float()
    return see > 0


def places_of(parents):
    """`[nodes]`: where each node stands, counted among the nodes."""
    return torch.arange(len(parents))


def state(score, v):
    """O and the natural LSE over some of the keys; -inf where there is none."""
    if score.shape[-1] == 0:
        nothing = score.new_zeros(score.shape[:-1])
        return nothing[..., None].expand(*nothing.shape, v.shape[-1]), nothing - torch.inf
    return torch.softmax(score, -1) @ v, torch.logsumexp(score, -1)


@subject(
    supports=Supports(
        masks=("tree",),
        required_masks=("tree",),
        logits=("alibi",),
        wild_slopes=False,
        scales=("default", "positive", "negative"),
        non_finite=False,
        backward=False,
    ),
    contract=Contract(lse_base="2"),
    device="cpu",
)
def verification(p):
    """O and the LSE."""
    group = p.q.shape[1] // p.k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1) for x in (p.k, p.v))
    rows, keys = p.q.shape[2], p.k.shape[2]
    before = keys - rows
    score = p.q.double() @ k.mT * p.scale
    if p.slopes is not None:
        place = places_of(p.tree)
        key_place = torch.cat((torch.arange(before), before + place))
        score = score - p.slopes.double()[:, None, None] * (place[:, None] - key_place).abs()
    o_prefix, lse_prefix = state(score[..., :before], v[..., :before, :])
    nodes = score[..., before:].masked_fill(~ancestors_of(p.tree), -torch.inf)
    o_nodes, lse_nodes = state(nodes, v[..., before:, :])
    lse = torch.logaddexp(lse_prefix, lse_nodes)
    share = torch.exp(lse_prefix - lse)[..., None]
    return (o_prefix * share + o_nodes * (1 - share)).to(p.q.dtype), (lse / math.log(2)).float()


SUBJECT = verification
