"""Planted misuses of memory: each one change in one place of the bundled kernels, some of them without effect on any output."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["MEMORY_BANK"]

_HEAD = "ptr = x.ptr + (b.to(tl.int64) * x.batch + h.to(tl.int64) * x.head + first.to(tl.int64) * x.row)"
_FIRST_ROW = "m0 = tile * BLOCK_M"
_STORE_DELTA = "tl.store(row_ptrs(stats.delta, stats, b, h, q0, i), delta, mask=i < sq)"

MEMORY_BANK = (
    Mutant(
        name="reads_a_row_past_k",
        file="device/forward.py",
        before="k = load_tile(k_head, j, k_end,",
        after="k = load_tile(k_head, j, sk + 1,",
        outputs=("k_view",),
        modelled_on="an inclusive bound taken as exclusive",
    ),
    Mutant(
        name="writes_a_row_past_o",
        file="device/forward.py",
        before="store_tile(o_head, acc / divisor[:, None], i, sq,",
        after="store_tile(o_head, acc / divisor[:, None], i, sq + 1,",
        outputs=("o_view",),
        modelled_on="an inclusive bound taken as exclusive",
    ),
    Mutant(
        name="tail_of_v_unmasked",
        file="device/forward.py",
        before="v = load_tile(v_head, j, k_end,",
        after="v = load_tile(v_head, j, n0 + BLOCK_N,",
        outputs=("v_view",),
        modelled_on="the weights of the tail are 0, so its values are taken not to matter",
        semantics="padding-of-v-multiplied",
    ),
    Mutant(
        name="lse_stored_without_mask",
        file="device/forward.py",
        before="lse2, mask=i < sq)",
        after="lse2)",
        outputs=("stats.lse2",),
        modelled_on="a store of row statistics without its mask",
    ),
    Mutant(
        name="last_tile_moved_back",
        file="device/forward.py",
        before=_FIRST_ROW,
        after=f"{_FIRST_ROW}\n    m0 = tl.minimum(m0, tl.maximum(sizes.sq - BLOCK_M, 0))",
        outputs=("o_view", "stats.lse2"),
        modelled_on="a tail made whole by overlapping its neighbour: two programs write the same rows",
    ),
    Mutant(
        name="last_row_of_dq_unwritten",
        file="device/dq.py",
        before="store_tile(dq_head, dq * terms.scale, i, sq,",
        after="store_tile(dq_head, dq * terms.scale, i, sq - 1,",
        outputs=("dq",),
        modelled_on="nntrainer/nntrainer#3989: the last rows are never computed",
        semantics="not-written",
    ),
    Mutant(
        name="strides_of_v_swapped",
        file="device/forward.py",
        before="head_of(v_view, b, h // sizes.group, k0, ALIGNED)",
        after="head_of(View(v_view.ptr, v_view.head, v_view.batch, v_view.row), b, h // sizes.group, k0, ALIGNED)",
        outputs=("v_view", "o"),
        modelled_on="strides passed in the order of another layout",
    ),
    Mutant(
        name="delta_of_the_last_row_missing",
        file="device/delta.py",
        before=_STORE_DELTA,
        after=_STORE_DELTA.replace("i < sq", "i < sq - 1"),
        outputs=("delta", "stats.delta"),
        modelled_on="a buffer allocated, not filled, and read by the next kernel",
        semantics="not-written",
    ),
    Mutant(
        name="q_written_back",
        file="device/forward.py",
        before="divisor, lse2 = finish(m_i, l_i)",
        after="store_tile(q_head, q, i, sq, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n    divisor, lse2 = finish(m_i, l_i)",
        outputs=("q_view",),
        modelled_on="an input used as scratch and restored: wrong as soon as two kernels share it",
    ),
    Mutant(
        name="offset_in_32_bits",
        file="device/address.py",
        before=_HEAD,
        after="ptr = x.ptr + (b.to(tl.int64) * x.batch + h.to(tl.int64) * x.head + first.to(tl.int64) * x.row).to(tl.int32)",
        outputs=("q_view", "k_view", "v_view"),
        modelled_on="offsets past 2^31 elements wrap",
    ),
    Mutant(
        name="load_without_other",
        file="device/address.py",
        before="return tl.load(ptrs, mask=keep, other=0.0)",
        after="return tl.load(ptrs, mask=keep)",
        outputs=("q_view", "k_view", "v_view", "do_view", "o_view"),
        modelled_on="masked lanes are taken to be 0, which they are in an interpreter and on most devices",
    ),
    Mutant(
        name="delta_of_another_program",
        file="device/delta.py",
        before=_STORE_DELTA,
        after=f"{_STORE_DELTA}\n    tl.load(stats.delta)",
        outputs=("stats.delta",),
        modelled_on="a value of another program read in the same launch",
    ),
    Mutant(
        name="channels_unmasked",
        file="device/address.py",
        before="if not EVEN:",
        after="if False:",
        outputs=("q_view", "k_view", "v_view", "o_view", "dq_view", "dk_view", "dv_view", "do_view"),
        modelled_on="a head dimension that is no power of two treated as one",
    ),
    Mutant(
        name="length_of_the_next_batch",
        file="device/address.py",
        before="tl.load(lengths_ptr + b)",
        after="tl.load(lengths_ptr + b + 1)",
        outputs=("sequences.q_lengths", "sequences.k_lengths"),
        modelled_on="cumulative lengths taken for lengths",
    ),
)
"""Found by the checks `sanitizer` and `memory`; `outputs` are the tensors and kernel parameters that these name."""
