"""Defects of what is done to logits: softcap, ALiBi, bias, sinks."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["LOGITS"]

_CAP_FIRST = """\
    z = dot * terms.scale_log2 if terms.cap_log2 is None else tanh(dot * terms.cap_ratio) * terms.cap_log2
    if terms.bias.ptr is not None:
        z += load_bias(head.bias, terms.bias.row, i, j, sq, k_end, MASKED)
    if terms.slopes is not None:
        z -= head.slope_log2 * tl.abs(i + head.shift - j).to(tl.float32)
"""
_CAP_LAST = """\
    alone = terms.bias.ptr is None and terms.slopes is None
    z = tanh(dot * terms.cap_ratio) * terms.cap_log2 if alone and terms.cap_log2 is not None else dot * terms.scale_log2
    if terms.bias.ptr is not None:
        z += load_bias(head.bias, terms.bias.row, i, j, sq, k_end, MASKED)
    if terms.slopes is not None:
        z -= head.slope_log2 * tl.abs(i + head.shift - j).to(tl.float32)
    if terms.cap_log2 is not None and not alone:
        z = tanh(z / terms.cap_log2) * terms.cap_log2
"""
_SINK_BEFORE_LSE = """\
    if terms.sink is not None:
        m_i, l_i, alpha = take_sink(m_i, l_i, head_sink(terms.sink, h))
        acc = acc * alpha[:, None]
    divisor, lse2 = finish(m_i, l_i)
"""
_LSE_BEFORE_SINK = """\
    divisor, lse2 = finish(m_i, l_i)
    if terms.sink is not None:
        m_i, l_i, alpha = take_sink(m_i, l_i, head_sink(terms.sink, h))
        acc = acc * alpha[:, None]
        divisor, _ = finish(m_i, l_i)
"""

LOGITS = (
    Mutant(
        name="cap_without_derivative",
        file="device/dq.py",
        before="ds = dot_gradient(ds, dot, terms.cap_ratio)",
        after="ds = ds",
        outputs=("dq",),
        modelled_on="the derivative of the cap in one of two gradient kernels only",
        semantics="softcap-slope-missing",
        needs=("softcap", "backward"),
    ),
    Mutant(
        name="cap_by_exponentials",
        file="device/logits.py",
        before="far = 1.0 - _complement(size)",
        after="e = tl.exp2(size * (2.0 * LOG2_E))\n    far = (e - 1.0) / (e + 1.0)",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="vllm-project/vllm#56579: tanh as a ratio of exponentials; inf / inf",
        semantics="softcap-overflow",
        needs=("softcap",),
    ),
    Mutant(
        name="cap_after_the_bias",
        file="device/logits.py",
        before=_CAP_FIRST,
        after=_CAP_LAST,
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="the order of cap and bias, which differs between models",
        semantics="softcap-after-bias",
        needs=("softcap",),
    ),
    Mutant(
        name="distance_with_a_sign",
        file="device/logits.py",
        before="tl.abs(i + head.shift - j)",
        after="(i + head.shift - j)",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="slopes meant for causal masks used without one",
        semantics="alibi-signed-distance",
        needs=("alibi",),
    ),
    Mutant(
        name="distance_without_the_shift",
        file="device/forward.py",
        before="head = head_terms(terms, b, h, q0, q_end, k_end)",
        after="head = head_terms(terms, b, h, q0, q_end, q_end)",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="vllm-project/vllm#945: distances off by a shift, which under a causal mask the LSE alone shows",
        semantics="alibi-without-shift",
        needs=("alibi", "causal"),
    ),
    Mutant(
        name="slope_of_the_kv_head",
        file="device/dkdv.py",
        before="head = head_terms(terms, b, hk.to(tl.int64) * sizes.group + member, q0, q_end, k_end)",
        after="head = head_terms(terms, b, hk, q0, q_end, k_end)",
        outputs=("dk", "dv"),
        modelled_on="HazyResearch/HipKittens#22: a head's number among the wrong heads",
        semantics="alibi-slope-of-kv-head",
        needs=("alibi", "groups", "backward"),
    ),
    Mutant(
        name="bias_in_the_wrong_base",
        file="device/logits.py",
        before="scaled = bias.to(tl.float32) * LOG2_E",
        after="scaled = bias.to(tl.float32)",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="meta-pytorch/segment-anything-fast#71: a bias added to base-2 logits without log2(e)",
        semantics="bias-without-log2e",
        needs=("bias",),
    ),
    Mutant(
        name="strides_of_the_bias_swapped",
        file="device/logits.py",
        before="b.to(tl.int64) * bias.batch + h.to(tl.int64) * bias.head",
        after="b.to(tl.int64) * bias.head + h.to(tl.int64) * bias.batch",
        outputs=("o", "lse", "dq", "dk", "dv", "terms.bias"),
        modelled_on="pytorch/pytorch#184180: the offset into a mask that is broadcast over one axis only",
        semantics="bias-batch-head-exchanged",
        needs=("bias",),
    ),
    Mutant(
        name="rows_of_the_bias_unmasked",
        file="device/logits.py",
        before="keep = (i < sq) & (j < k_end) if MASKED else i < sq",
        after="keep = (j < k_end) if MASKED else i >= 0",
        outputs=("terms.bias", "o", "lse", "dq", "dk", "dv"),
        modelled_on="Dao-AILab/flash-attention#540: what is added to the logits needs bounds checks of its own",
        needs=("bias",),
    ),
    Mutant(
        name="dbias_of_the_last_head",
        file="reductions.py",
        before="ds = ds.sum(shared, keepdim=True)",
        after="ds = ds[tuple(slice(-1 if axis in shared else 0, None) for axis in range(4))]",
        outputs=("dbias",),
        modelled_on="HKUSTDial/flash-sparse-attention#193: the gradient of a broadcast bias overwritten instead of added up",
        semantics="dbias-last-head-only",
        needs=("bias", "backward"),
    ),
    Mutant(
        name="dbias_rounded_before_the_sum",
        file="reductions.py",
        before="ds = ds.sum(shared, keepdim=True)",
        after="ds = ds.to(bias.dtype).sum(shared, keepdim=True)",
        outputs=("dbias",),
        modelled_on="sonos/tract#2586: a sum in the precision of its terms",
        needs=("bias", "backward"),
    ),
    Mutant(
        name="dbias_of_skipped_tiles_unwritten",
        file="launch.py",
        before="ds = torch.zeros(*rows,",
        after="ds = torch.empty(*rows,",
        outputs=("dbias",),
        modelled_on="fla-org/flash-linear-attention#892: a buffer allocated, not filled, and reduced later",
        needs=("bias", "backward"),
    ),
    Mutant(
        name="sink_in_empty_rows",
        file="device/softmax.py",
        before="empty = l_i == 0.0",
        after="empty = l_i < 0.0",
        outputs=("o", "lse"),
        modelled_on="Dao-AILab/flash-attention#2706: the LSE of a row without keys changed by its sink",
        semantics="sink-in-empty-rows",
        needs=("sink",),
    ),
    Mutant(
        name="lse_without_the_sink",
        file="device/forward.py",
        before=_SINK_BEFORE_LSE,
        after=_LSE_BEFORE_SINK,
        outputs=("lse", "dq", "dk", "dv", "dsink"),
        modelled_on="NVIDIA/cudnn-frontend#421: the sink left out of the LSE of the backward",
        semantics="sink-missing",
        needs=("sink",),
    ),
    Mutant(
        name="dsink_without_dlse",
        file="launch.py",
        before="sink_gradient(sink, lse2, delta,",
        after="sink_gradient(sink, lse2, delta if dlse is None else delta + dlse,",
        outputs=("dsink",),
        modelled_on="Dao-AILab/flash-attention#2706: the share of dLSE in the gradient of the sink",
        semantics="dsink-without-dlse",
        needs=("sink", "backward"),
    ),
    Mutant(
        name="dsink_with_the_wrong_sign",
        file="reductions.py",
        before="return -",
        after="return +",
        outputs=("dsink",),
        modelled_on="the derivative of the normaliser without its minus",
        semantics="dsink-sign",
        needs=("sink", "backward"),
    ),
    Mutant(
        name="packed_bias_of_the_first_rows",
        file="device/logits.py",
        before="bias = head_bias(terms.bias, b, h) + q0.to(tl.int64) * terms.bias.row",
        after="bias = head_bias(terms.bias, b, h)",
        outputs=("o", "lse", "dq", "dk", "dv", "dbias"),
        modelled_on="packed sequences that read a table of the first one: the offset of a sequence is added to q, k and v alone",
        needs=("packed", "bias"),
    ),
)
