"""Held-out defects of kernels that are not the bundled ones, the eighth set; see `benchmarks/README.md`.

Attention over folded heads in plain torch with a backward by hand, and decoding in two stages in Triton, in the folder `own`. They are planted
by themselves: `plant` writes the changed module, which `as_a_user.py` runs in place of a changed bundled kernel.
"""

from held_out.own_defect import OwnDefect

__all__ = ["DEFECTS"]

DEFECTS: tuple[OwnDefect, ...] = (
    OwnDefect(
        name="s8_slopes_of_a_group_in_turn",
        file="eighth/own/folded.py",
        before="    return slopes.view(kv_heads, -1).repeat_interleave(rows, 1)\n",
        after="    return slopes.view(kv_heads, -1).repeat(1, rows)\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="repeat where repeat_interleave is meant: the heads of a group are folded into the rows, head by head, and the ALiBi slopes are laid out row by row: row r of a kv head has the slope of member r % group; right without groups, with one row, and where the slopes of a group are alike",
        needs=("alibi", "groups"),
    ),
    OwnDefect(
        name="s8_dk_scaled_twice",
        file="eighth/own/folded.py",
        before="        dk = ds.mT @ x\n",
        after="        dk = ds.mT @ x * p.scale\n",
        outputs=("dk",),
        modelled_on="a scale that is in the operand already: q is multiplied by the scale before the products, and dK by it once more: dK is too small or too large by the factor of the scale; a scale of 1 is right, and so are dQ and dV",
        needs=("backward",),
    ),
    OwnDefect(
        name="s8_newest_key_not_yet_counted",
        file="eighth/own/two_stage.py",
        before="        n = tl.load(lengths_ptr + b)\n",
        after="        n = tl.load(lengths_ptr + b) - 1\n",
        outputs=("o", "lse"),
        modelled_on="a length of the cache from before this step's key was appended: with declared key lengths the last key of every sequence is left out and a causal diagonal ends one key early; without lengths all is right",
        needs=("key_lengths",),
    ),
    OwnDefect(
        name="s8_row_sums_added_as_they_are",
        file="eighth/own/two_stage.py",
        before="        total += l_part * factor\n",
        after="        total += l_part\n",
        outputs=("o", "lse"),
        modelled_on="two stages whose second rescales the numerators and not the row sums: the row sums of the parts are added without the factor exp(m_part - m): the LSE is too large and O too small where parts have different maxima; one part is right",
        needs=("launch",),
    ),
)
