"""Held-out defects of kernels that are not the bundled ones, the ninth set; see `benchmarks/README.md`.

An online softmax in plain torch that autograd differentiates, and decoding over a cache that rolls in Triton, in the folder `own`. They are
planted by themselves: `plant` writes the changed module, which `as_a_user.py` runs in place of a changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="s9_normaliser_without_a_gradient",
        file="ninth/own/online.py",
        before="    o = acc / divisor\n",
        after="    o = acc / divisor.detach()\n",
        outputs=("dq", "dk", "dbias"),
        modelled_on="a detach too many: the row sum that divides O is a constant to autograd: dQ, dK and dbias lack the rank-one part of the softmax's derivative (P * delta) of O; the part through the LSE is right, and so are dV, O and LSE",
        needs=("backward",),
    ),
    OwnDefect(
        name="s9_maximum_with_a_gradient",
        file="ninth/own/online.py",
        before="        m_new = torch.maximum(m, s.detach().amax(-1, keepdim=True))\n",
        after="        m_new = torch.maximum(m, s.amax(-1, keepdim=True))\n",
        outputs=("dq", "dk", "dbias"),
        modelled_on="a detach too few: the maximum that is subtracted from the logits is differentiated, that which is added to the LSE again is not: the gradient through the LSE of a row counts its weights less one for its largest logit; right without such a gradient, in dV, O and LSE",
        needs=("backward",),
    ),
    OwnDefect(
        name="s9_logits_kept_within_fifty",
        file="ninth/own/online.py",
        before="        s = x @ wide_k[:, :, part].mT\n",
        after="        s = (x @ wide_k[:, :, part].mT).clamp(-50.0, 50.0)\n",
        outputs=("o", "lse", "dq", "dk", "dv", "dbias"),
        modelled_on="logits that are clamped so that their exponential cannot overflow, in a softmax that subtracts the maximum anyway: scaled products above 50 count as 50 and those below -50 as -50, before the bias is added, and have no gradient; smaller ones are right",
    ),
    OwnDefect(
        name="s9_slots_of_the_newest_lap_alone",
        file="ninth/own/rolling.py",
        before="        j = slot + tl.maximum(n - 1 - slot, 0) // room * room  # the newest key of the slot\n",
        after="        j = slot + tl.maximum(n - 1, 0) // room * room\n",
        outputs=("o", "lse"),
        modelled_on="a cache that rolls, all of whose slots are taken to be of the lap that is being written: those that it has not reached yet hold keys of the lap before, and are taken for keys behind the last one: rows lose the older keys of their window; right while the keys fit into the cache, and where they end with its last slot",
        needs=("window",),
    ),
    OwnDefect(
        name="s9_room_for_one_query",
        file="ninth/own/rolling.py",
        before="    room = min(left + rows, keys)\n",
        after="    room = min(left + 1, keys)\n",
        outputs=("o", "lse"),
        modelled_on="a cache that rolls with room for the window of a single query: with several queries the newest keys lie over the oldest ones of the windows of the rows before the last, which lose as many keys as there are rows behind them; one query, and caches that hold all keys, are right",
        needs=("window",),
    ),
    OwnDefect(
        name="s9_maximum_scaled_afterwards",
        file="ninth/own/rolling.py",
        before="        m_new = tl.maximum(m, tl.max(s, 1))\n",
        after='        m_new = tl.maximum(m, tl.max(tl.where(see, dot, float("-inf")), 1) * scale)\n',
        outputs=("o", "lse"),
        modelled_on="Dao-AILab/flash-attention#1461: the maximum of the products is taken before they are scaled: with a negative scale it belongs to the smallest logit, so that weights grow above 1 (in fp16 to infinity from logits 11 above it on: O is NaN), and a row that sees no key of a step has a maximum of +inf from there on (O is 0 and the LSE +inf); positive scales are right",
        needs=("window",),
    ),
)
