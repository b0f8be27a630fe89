"""Held-out defects of host code, the eighteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s18_delta_by_the_channels_of_q",
        file="launch.py",
        before='        **{name: shared[name] for name in ("BLOCK_DV", "EVEN_DV", "ALIGNED")},\n',
        after='        BLOCK_DV=shared["BLOCK_D"],\n        EVEN_DV=shared["EVEN_D"],\n        ALIGNED=shared["ALIGNED"],\n',
        outputs=("delta", "dq", "dk", "dbias", "dsink", "drelative_bias"),
        modelled_on="pytorch/pytorch#133495 (corollary): the head dimension of q where that of v is meant: the kernel of delta is launched with the width of the tiles of q and k: where the channels of v need a wider tile, delta sums dO * O over the first channels alone, and where those of q fill a tile that those of v do not, it sums channels behind the row, which are those of the next row; equal head dimensions, those whose tiles are equally wide and both full or both not, the forward and dV are right",
        needs=("backward",),
    ),
    Mutant(
        name="s18_delta_in_the_tiles_of_dq",
        file="launch.py",
        before="        BLOCK_M=DELTA_ROWS,\n",
        after='        BLOCK_M=call.configs["dq"].block_m,\n',
        outputs=("delta", "dq", "dk", "dbias", "dsink", "drelative_bias"),
        modelled_on="triton-lang/triton#2020: a grid that belongs to other tiles: the kernel of delta takes the tiles of dQ, and its programs are still counted in tiles of 64 rows: where a tile of dQ has fewer rows, by a launch configuration or a small block of a block mask, and a head more rows than that, there are too few programs, and delta of the last heads and rows stays unwritten; where it has more, there are too many where a head has more than 64 rows, and the surplus ones write delta of heads behind the last one; where the tiles of dQ have 64 rows, or more where all rows of a head fit into 64, and for up to 16 queries it is right",
        needs=("backward",),
    ),
    Mutant(
        name="s18_delta_reads_do_by_the_strides_of_o",
        file="device/delta.py",
        before="    do_head = head_of(do_view, b, h, q0, ALIGNED)\n",
        after="    do_head = head_of(View(do_view.ptr, o_view.batch, o_view.head, o_view.row), b, h, q0, ALIGNED)\n",
        outputs=("delta", "dq", "dk", "dbias", "dsink", "drelative_bias"),
        modelled_on="Dao-AILab/flash-attention#355: the strides of dO are ignored: the kernel of delta walks dO by the strides of O, so that delta is a sum over other elements of dO, or of memory between them, wherever dO lies in memory as O does not (an expanded, transposed or sliced one); a dO that is laid out like O, the forward and dV are right",
        needs=("backward",),
    ),
)
