import triton.language as tl

from flashverify_kernels.device.address import head_of, load_tile, row_ptrs, rows_of
from flashverify_kernels.device.arguments import Sequences, Sizes, Statistics, View
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.order import place_of


@kernel
def delta_kernel(
    o_view: View,
    do_view: View,
    stats: Statistics,
    sequences: Sequences,
    sizes: Sizes,
    BLOCK_M: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    EVEN_DV: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Compute delta = rowsum(dO * O) - dLSE in fp32, from the stored O; exactly 0 for a row without keys.

    One program per (sequence, query head, tile of rows). Arguments as in `forward_kernel`; of `stats` the delta is
    written.
    """
    b, h, tile = place_of(sequences.cu_q, sequences, sizes.sq, sizes.heads, BLOCK_M, False, False)
    q0, sq, q_end = rows_of(sequences.cu_q, sequences.q_lengths, b, sizes.sq)
    i = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    o_head = head_of(o_view, b, h, q0, ALIGNED)
    do_head = head_of(do_view, b, h, q0, ALIGNED)
    o = load_tile(o_head, i, q_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    do = load_tile(do_head, i, q_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    if stats.dlse is not None:
        delta -= tl.load(row_ptrs(stats.dlse, stats, b, h, q0, i), mask=i < q_end, other=0.0)
    lse2 = tl.load(row_ptrs(stats.lse2, stats, b, h, q0, i), mask=i < q_end, other=float("-inf"))
    delta = tl.where(lse2 == float("-inf"), 0.0, delta)
    tl.store(row_ptrs(stats.delta, stats, b, h, q0, i), delta, mask=i < sq)
