"""Attention in plain torch, right or with one defect in its backward or its scale."""

import torch

from flashverify import Contract, Forward, Gradients, Supports, subject
from flashverify.case.masks.positions import positions
from flashverify.truth import kept_pairs

SUPPORTS = Supports(masks=("causal",), causal=("top-left",), gqa=False, dropout=True)


def kept(p, shift):
    """The weights that dropout keeps, of a generator `shift` calls further; all of them without dropout."""
    case = p.case
    place = positions(case, p.q.device)
    numbers = {"seed": p.dropout_seed, "offset": p.dropout_offset + shift, "p": p.dropout_p, "heads": case.heads_q}
    pairs = kept_pairs(**numbers, sequence=place.row_sequence, row=place.row, key=place.key)
    return pairs(slice(0, case.seq_q), slice(0, case.seq_k)) / (1 - p.dropout_p) if p.dropout_p else 1.0


def planted(*, dk=1.0, mask_shift=0, scale=1.0, raises_at=None, calls=None):
    """A subject whose dK is `dk` times too large before it is rounded, or whose backward drops other weights, or with another scale.

    Its backward appends each problem to `calls`, and raises from the call number `raises_at` on.
    """
    calls = [] if calls is None else calls

    def backward(p, forward):
        calls.append(p)
        if raises_at is not None and len(calls) > raises_at:
            raise ValueError("no more")
        weights, do, keep = forward.saved, p.do.float(), kept(p, mask_shift)
        delta = (do * forward.o.float()).sum(-1, keepdim=True)
        ds = weights * (keep * (do @ p.v.float().mT) - delta) * p.scale * scale
        found = ds @ p.k.float(), ds.mT @ p.q.float() * dk, (weights * keep).mT @ do
        return Gradients(*(x.to(p.q.dtype) for x in found))

    @subject(name="planted", supports=SUPPORTS, contract=Contract(reads_outputs=True), backward=backward, device="cpu")
    def attention(p):
        logits = p.q.float() @ p.k.float().mT * p.scale * scale
        logits = logits.masked_fill(~torch.ones(logits.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
        lse = logits.logsumexp(-1)
        weights = (logits - lse.unsqueeze(-1)).exp()
        return Forward(((weights * kept(p, 0)) @ p.v.float()).to(p.q.dtype), lse, weights)

    return attention


RIGHT = planted()
DK = planted(dk=1.001)
MASK = planted(mask_shift=1)
