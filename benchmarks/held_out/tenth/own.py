"""Held-out defects of kernels that are not the bundled ones, the tenth set; see `benchmarks/README.md`.

Attention over centred keys in plain torch with a backward by hand, attention by programs that stay in Triton, and decoding in pieces of pages in
plain torch, in the folder `own`. They are planted by themselves: `plant` writes the changed module, which `as_a_user.py` runs in place of a
changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="s10_lse_of_the_centred_keys",
        file="tenth/own/centred.py",
        before="        lse = (m + torch.log(divisor) + lost)[..., 0].float()\n",
        after="        lse = (m + torch.log(divisor))[..., 0].float()\n",
        outputs=("lse", "dq", "dk", "dv"),
        modelled_on="SageAttention's smoothing of K with an LSE that is not corrected: the LSE is that of keys less their mean, too small by scale * q . mean(k); O is right, the gradients follow the wrong LSE; keys whose mean is 0 are right",
    ),
    OwnDefect(
        name="s10_keys_centred_in_place",
        file="tenth/own/centred.py",
        before="    return torch.where(counts, wide - mean, 0.0), mean\n",
        after="    k -= mean.to(k.dtype)\n    return torch.where(counts, k.double(), 0.0), mean\n",
        outputs=("k", "o", "lse", "dq", "dk", "dv"),
        modelled_on="thu-ml/SageAttention e1cac2f: state: `k -= km` writes to the caller's keys: O and LSE of a call are right but for the rounding of the centred keys to their dtype; whoever reads the keys afterwards, the backward and the next call, has the centred ones, so that LSE and gradients no longer fit",
    ),
    OwnDefect(
        name="s10_dk_centred_too",
        file="tenth/own/centred.py",
        before="        dv = (weights.mT @ dx)",
        after="        dk = torch.where(counts, dk - dk.sum(2, keepdim=True) / counts.sum(2, keepdim=True).clamp(min=1), 0.0)\n"
        "        dv = (weights.mT @ dx)",
        outputs=("dk",),
        modelled_on="the derivative of a step whose effect is taken back: dK loses its mean over the keys, as if the LSE did not get back what the centred keys lost: right where nothing comes through the LSE (then that mean is 0 but for what the rounding of O leaves in 16 bits), and in dQ and dV",
        needs=("backward",),
    ),
    OwnDefect(
        name="s10_maximum_of_the_tile_before",
        file="tenth/own/persistent.py",
        before="    for item in range(tl.program_id(0), items, tl.num_programs(0)):\n"
        '        m = tl.full([BLOCK], float("-inf"), tl.float32)\n',
        after='    m = tl.full([BLOCK], float("-inf"), tl.float32)\n'
        "    for item in range(tl.program_id(0), items, tl.num_programs(0)):\n",
        outputs=("o", "lse"),
        modelled_on="a program that stays and does not reset all of its state: a row begins with the running maximum of the row that had its place in the tile before: its weights lose precision or vanish where that is far larger (16 bits first), and the LSE of a row without keys is finite; the first tile of a program, and rows with larger logits, are right",
    ),
    OwnDefect(
        name="s10_share_of_the_joined_lse",
        file="tenth/own/pieces.py",
        before="    share = torch.sigmoid(lse_new - lse)\n"
        "    both = lse - torch.nn.functional.logsigmoid(lse - lse_new)\n",
        after="    both = lse - torch.nn.functional.logsigmoid(lse - lse_new)\n"
        "    share = torch.sigmoid(lse_new - both)\n",
        outputs=("o",),
        modelled_on="an LSE that is updated one line too early: the share of a further piece in O is the logistic function of its LSE less that of all pieces so far, itself included, so too small, never more than a half; the LSE is right, and so are one piece and pieces without keys",
    ),
    OwnDefect(
        name="s10_gap_through_the_exponential",
        file="tenth/own/pieces.py",
        before="    both = lse - torch.nn.functional.logsigmoid(lse - lse_new)\n",
        after="    both = lse + torch.log(1 + torch.exp(lse_new - lse))\n",
        outputs=("lse",),
        modelled_on="zhuzilin/ring-flash-attention 9b84a6a: lse + log(1 + exp(gap)): the LSE is infinite where the LSE of a further piece lies more than 88 above that of the ones before; O and smaller gaps are right, and so is one piece",
    ),
)
