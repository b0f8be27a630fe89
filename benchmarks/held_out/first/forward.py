"""Held-out defects that show in the outputs of the forward; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_TRUNCATED = """\
out = acc / divisor[:, None]
    if o_view.ptr.dtype.element_ty == tl.bfloat16:
        out = (out.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    store_tile(o_head, out,"""
_POLYNOMIAL = """\
    p = tl.exp2(z - pivot[:, None])
    if not MASKED:
        x = z - pivot[:, None]
        whole = tl.floor(x)
        r = x - whole
        near = tl.exp2(whole) * (1.0 + r * (0.695146 + r * (0.227564 + r * 0.077119)))
        p = tl.where(x > -126.0, near, p)
"""
_EVERY = ("o", "lse", "dq", "dk", "dv")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="h_v_of_head_modulo",
        file="device/forward.py",
        before="v_head = head_of(v_view, b, h // sizes.group, k0, ALIGNED)",
        after="v_head = head_of(v_view, b, h % sizes.kv_heads, k0, ALIGNED)",
        outputs=("o",),
        modelled_on="the forward reads V, and V only, of kv head h % Hkv, where h // group is meant: O is wrong with groups and more than one kv head, LSE is right",
        semantics="head-modulo",
        needs=("groups",),
    ),
    Mutant(
        name="h_cap_with_default_scale",
        file="arguments.py",
        before="cap_ratio=None if cap is None else call.scale / cap,",
        after="cap_ratio=None if cap is None else (call.scale if call.d <= 64 else call.d**-0.5) / cap,",
        outputs=_EVERY,
        modelled_on="with a softcap and D > 64 the logits are scaled by 1 / sqrt(D) whatever scale is asked for, forward and backward; the last factor of dQ and dK is the right one",
        semantics="scale-default",
        needs=("softcap",),
    ),
    Mutant(
        name="h_diagonal_never_before_the_first_key",
        file="device/mask.py",
        before="shift = mask.align_end * (k_end - q_end)",
        after="shift = mask.align_end * tl.maximum(k_end - q_end, 0)",
        outputs=_EVERY,
        modelled_on="where there are more queries than keys a bottom-right causal mask (and its window) is aligned at the top left, in all kernels; right where Sq <= Sk",
        semantics="causal-top-left",
        needs=("causal",),
    ),
    Mutant(
        name="h_alibi_at_the_last_key_without_causal",
        file="terms.py",
        before='align_distances=options.causal == "bottom-right",',
        after='align_distances=options.causal != "top-left",',
        outputs=_EVERY,
        modelled_on="without a causal mask ALiBi and the relative bias measure distances from the bottom-right diagonal, where the top-left one is declared: wrong where the numbers of queries and keys that count differ",
        needs=("alibi",),
    ),
    Mutant(
        name="h_relative_bias_in_masked_tiles_only",
        file="device/logits.py",
        before="if terms.relative.ptr is not None:\n        z +=",
        after="if terms.relative.ptr is not None and MASKED:\n        z +=",
        outputs=("o", "lse", "dq"),
        modelled_on="forward and dQ leave the relative bias out in tiles that need no mask; dK and dV have it, with the wrong LSE",
        semantics="relative-bias-missing",
        needs=("relative_bias",),
    ),
    Mutant(
        name="h_sink_does_not_rescale_o",
        file="device/forward.py",
        before="acc = acc * alpha[:, None]",
        after="acc = acc",
        outputs=("o",),
        modelled_on="where the sink is larger than all logits of a row, the accumulator is not rescaled when the sink is taken in: O is too large, LSE is right",
        needs=("sink",),
    ),
    Mutant(
        name="h_bits_rows_as_wide_as_the_declared_keys",
        file="device/mask.py",
        before="bits.ptr + i.to(tl.int64) * bits.row + (bit >> 5)",
        after="bits.ptr + i.to(tl.int64) * tl.cdiv(k_end - bits_start, 32) + (bit >> 5)",
        outputs=(*_EVERY, "mask.bits"),
        modelled_on="the row stride of the bitmap is taken to be ceil(number of keys of the sequence / 32) words: right for contiguous words and all keys, wrong from the second row on where key lengths or packed sequences are shorter, or words are strided",
        needs=("bitmap",),
    ),
    Mutant(
        name="h_prefix_outside_the_window",
        file="device/mask.py",
        before="see = see & (j >= i + band.low)",
        after="see = see & ((j >= i + band.low) | (j < band.prefix))",
        outputs=_EVERY,
        modelled_on="with a prefix and a window the left side of the window does not hide keys of the prefix, in the tiles that are visited at all",
        semantics="prefix-outside-window",
        needs=("prefix_lengths", "window"),
    ),
    Mutant(
        name="h_exponential_by_a_cubic_in_full_tiles",
        file="device/softmax.py",
        before="    p = tl.exp2(z - pivot[:, None])\n",
        after=_POLYNOMIAL,
        outputs=("o", "lse"),
        modelled_on="in tiles that need no mask the exponential of the forward is a polynomial of degree 3 with a relative error of 1e-4: LSE and O are imprecise there",
    ),
    Mutant(
        name="h_odd_eights_of_q_ignored",
        file="device/forward.py",
        before="q = load_tile(q_head, i, q_end, sizes.d8, BLOCK_D,",
        after="q = load_tile(q_head, i, q_end, sizes.d8 // 2 * 2, BLOCK_D,",
        outputs=("o", "lse"),
        modelled_on="where D is no multiple of 16 the forward ignores the last 8 channels of q k",
    ),
    Mutant(
        name="h_row_sum_not_rescaled_in_masked_tiles",
        file="device/softmax.py",
        before="return p, m_new, l_i * alpha + tl.sum(p, 1), alpha",
        after="return p, m_new, (l_i if MASKED else l_i * alpha) + tl.sum(p, 1), alpha",
        outputs=("o", "lse"),
        modelled_on="in tiles that need a mask (the last one, those at the diagonal) the row sum is not rescaled when the running maximum grows; the accumulator is",
        semantics="row-sum-not-rescaled",
    ),
    Mutant(
        name="h_window_cut_at_the_number_of_queries",
        file="masking.py",
        before="far_left, far_right = (extent.max_k, extent.max_q) if align_end else (extent.max_q, extent.max_k)",
        after="far_left, far_right = extent.max_q, extent.max_k",
        outputs=_EVERY,
        modelled_on="under a bottom-right causal mask the left side of a window is cut to the number of queries: rows lose keys where Sq < Sk and the left side is larger than Sq",
        needs=("causal", "window"),
    ),
    Mutant(
        name="h_draws_of_tiles_of_64",
        file="device/dropout.py",
        before="quad = n0 // 4 + tl.arange(0, BLOCK_N // 4)",
        after="quad = n0 // BLOCK_N * 16 + tl.arange(0, BLOCK_N // 4)",
        outputs=("o", "dq", "dk", "dv"),
        modelled_on="dropout draws for the t-th key tile those of keys from 64 t on: wrong from the second tile on where tiles of keys are not 64 wide",
        needs=("dropout", "launch"),
    ),
    Mutant(
        name="h_o_truncated_in_bf16",
        file="device/forward.py",
        before="store_tile(o_head, acc / divisor[:, None],",
        after=_TRUNCATED,
        outputs=("o",),
        modelled_on="O is cut off where it is to be rounded, in bf16 only",
    ),
    Mutant(
        name="h_negative_scale_taken_as_positive",
        file="arguments.py",
        before="scale_log2=call.scale * LOG2_E,",
        after="scale_log2=abs(call.scale) * LOG2_E,",
        outputs=_EVERY,
        modelled_on="a negative scale is taken as positive in the logits of all kernels, unless there is a softcap; the last factor of dQ and dK keeps its sign",
        semantics="scale-sign",
    ),
)
