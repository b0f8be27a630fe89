"""Held-out defects of the backward of kernels that are not the bundled ones, the eighteenth set; see `benchmarks/README.md`.

A kernel in Triton with forward and backward, which stores dK and dV of every query head, and one in plain torch whose backward is written by hand
and takes pieces of rows, in the folder `own`. They are planted by themselves: `plant` writes the changed module, which `as_a_user.py` runs in place
of a changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="s18_rows_of_a_key_end_by_the_right_side",
        file="eighteenth/own/backward_per_head.py",
        before="    for start in range(begin, tl.minimum(rows, first + BLOCK + left), BLOCK):\n",
        after="    for start in range(begin, tl.minimum(rows, first + BLOCK + right), BLOCK):\n",
        outputs=("dk", "dv"),
        modelled_on="a bound that is copied from the walk over keys: the walk of dK and dV over the rows ends where the right side of a window ends behind the tile of keys, and not the left side: with causal masks and with windows whose right side is narrower than the left one, rows behind the tile by more than the right side give nothing to dK and dV of its keys; without a bounded right side, with one no narrower than the left one, where all rows end with the tile of keys, and in dQ and the forward it is right",
        needs=("backward",),
    ),
    OwnDefect(
        name="s18_slope_of_the_kv_head_for_dk",
        file="eighteenth/own/backward_per_head.py",
        before="    slope = 0.0 if slopes_ptr is None else tl.load(slopes_ptr + h)\n    j = first + tl.arange(0, BLOCK)\n",
        after="    slope = 0.0 if slopes_ptr is None else tl.load(slopes_ptr + h // group)\n    j = first + tl.arange(0, BLOCK)\n",
        outputs=("dk", "dv"),
        modelled_on="a kv head where a query head is meant: the kernel of dK and dV takes the ALiBi slope that is numbered like the kv head, h // group, in place of that of query head h: with groups its weights are those of other slopes than the forward's; groups of one, query head 0, problems without ALiBi, the forward and dQ are right",
        needs=("backward", "alibi", "groups"),
    ),
    OwnDefect(
        name="s18_last_piece_begins_by_its_own_length",
        file="eighteenth/own/backward_by_pieces.py",
        before="        at = number * PIECE + torch.arange(piece.shape[3])\n",
        after="        at = number * piece.shape[3] + torch.arange(piece.shape[3])\n",
        outputs=("dq", "dk", "dv", "dbias"),
        modelled_on="pieces that are counted in their own length: a last piece of rows that is shorter than the others, of 24 rows, takes the maxima and sums, delta, bias and causal mask of earlier rows, from its number times its own length on, and its dbias is added to these: dQ of the last piece's rows, and what they give to dK, dV and dbias, are wrong; one piece alone, whole pieces, and the forward are right",
        needs=("backward",),
    ),
    OwnDefect(
        name="s18_dbias_through_the_cap",
        file="eighteenth/own/backward_by_pieces.py",
        before="        if dbias is not None:\n"
        "            dbias[:, :, at] += ds.flatten(1, 2).sum_to_size(*p.bias.shape[:2], *ds.shape[3:])\n"
        "        ds = ds * slope * p.scale\n",
        after="        ds = ds * slope\n"
        "        if dbias is not None:\n"
        "            dbias[:, :, at] += ds.flatten(1, 2).sum_to_size(*p.bias.shape[:2], *ds.shape[3:])\n"
        "        ds = ds * p.scale\n",
        outputs=("dbias",),
        modelled_on="two lines in the wrong order: the gradient of the bias, which is added behind the cap, is multiplied by the slope of the cap, 1 - tanh(x)^2; without softcap, and where logits are far below the cap, it is right, and so are dQ, dK, dV and the forward",
        needs=("backward", "bias", "softcap"),
    ),
)
