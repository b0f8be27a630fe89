"""Held-out defects of precision, the sixteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s16_delta_in_16_bits",
        file="device/delta.py",
        before="    tl.store(row_ptrs(stats.delta, stats, b, h, q0, i), delta, mask=i < sq)\n",
        after="    delta = delta.to(o.dtype).to(tl.float32)\n"
        "    tl.store(row_ptrs(stats.delta, stats, b, h, q0, i), delta, mask=i < sq)\n",
        outputs=("dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="precision: (O * dO).sum(-1) as torch computes it, whose result has the dtype of O: delta is rounded to the dtype of O before it is stored (infinite beyond 65504 in fp16), so that dQ, dK, dsink and the gradients of biases are imprecise; dV, the forward and fp32 are right",
        needs=("backward",),
    ),
    Mutant(
        name="s16_keys_scaled_in_bf16_for_dq",
        file="device/dq.py",
        before="                dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)  # [BLOCK_M, BLOCK_D]\n"
        "\n"
        "    dq_head = head_of(dq_view, b, h, q0, ALIGNED)\n"
        "    store_tile(dq_head, dq * terms.scale, i, sq, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n",
        after="                scaled = (k.to(tl.float32) * terms.scale).to(tl.bfloat16).to(k.dtype)\n"
        "                dq = tl.dot(ds.to(k.dtype), scaled, dq, input_precision=PRECISION)  # [BLOCK_M, BLOCK_D]\n"
        "\n"
        "    dq_head = head_of(dq_view, b, h, q0, ALIGNED)\n"
        "    store_tile(dq_head, dq, i, sq, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n",
        outputs=("dq",),
        modelled_on="precision: a scale that is multiplied into an operand, in the type that the model once had: dQ is the product of dS and keys that were multiplied by the softmax scale and rounded to bf16, whatever the dtype: dQ has bf16's precision in fp16 and fp32; bf16 is nearly right, with one rounding more, and so are products that bf16 holds; dK, dV, the gradients of biases and the forward are right",
        needs=("backward",),
    ),
    Mutant(
        name="s16_scale_of_k_in_the_queries",
        file="device/quantised/attention.py",
        before="    else:\n        z = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision=PRECISION) * (k_scale * scale_log2)[None, :]\n",
        after="    else:\n"
        "        if ONE_K:  # folded into the queries\n"
        "            folded = (q.to(tl.float32) * (k_scale * scale_log2)[None, :]).to(q.dtype)\n"
        "            z = tl.dot(folded, tl.trans(k.to(q.dtype)), input_precision=PRECISION)\n"
        "        else:\n"
        "            z = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision=PRECISION) * (k_scale * scale_log2)[None, :]\n",
        outputs=("o", "lse"),
        modelled_on="precision: FlashInfer's and others' folding of a scale of K into that of the softmax, done in the operand: where one scale of K serves a head or all, and scales are folded, the queries are multiplied by it, by the softmax scale and by log2(e), and rounded to their dtype once more: logits are imprecise in 16 bits (and infinite or 0 where the product leaves the dtype); scales of keys or blocks, the mode in which operands are dequantised, and fp32 are right",
        subject="bundled-quantised",
    ),
    Mutant(
        name="s16_ds_as_a_difference_of_bf16_products",
        file="device/softmax.py",
        before="    ds = p * (dp - delta)\n",
        after="    ds = (p * dp).to(tl.bfloat16).to(tl.float32) - (p * delta).to(tl.bfloat16).to(tl.float32)\n",
        outputs=("dq", "dk", "dbias", "drelative_bias"),
        modelled_on="precision: a backward that keeps P * dP, as torch's softmax does, in the type of the model: dS is the difference of P * dP and P * delta, each of which is rounded to bf16, whatever the dtype, in every backward (that over chosen keys too): where the two are close the difference loses its digits; dQ, dK and the gradients of a bias and a relative bias are imprecise; dV, dsink, delta and the forward are right",
        needs=("backward",),
    ),
)
