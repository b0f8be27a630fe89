"""Held-out defects of precision, the thirteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s13_alibi_as_a_bias_in_bf16",
        file="device/logits.py",
        before="        z -= head.slope_log2 * tl.abs(i + head.shift - j).to(tl.float32)\n",
        after="        z -= (head.slope_log2 * tl.abs(i + head.shift - j).to(tl.float32)).to(tl.bfloat16).to(tl.float32)\n",
        outputs=_EVERY,
        modelled_on="precision: BLOOM's ALiBi, which is laid out as a tensor in the type of the model: slope times distance (base 2) is rounded to bf16 before it is subtracted, in all kernels and dtypes: logits are off by up to 2^-9 of the term; terms that bf16 holds, and all without slopes, are right",
        needs=("alibi",),
    ),
    Mutant(
        name="s13_ds_by_way_of_e5m2",
        file="device/dq.py",
        before="                dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)  # [BLOCK_M, BLOCK_D]\n",
        after="                ds = ds.to(tl.float8e5).to(tl.float32)\n"
        "                dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)  # [BLOCK_M, BLOCK_D]\n",
        outputs=("dq",),
        modelled_on="precision: a backward in fp8, whose dS is cast to e5m2: dQ is the product of keys and dS with two bits behind the leading one (those below 2^-17 are 0), in every dtype; dbias and the gradient of a relative bias hold dS as it was, and dK, dV and the forward are right",
        needs=("backward",),
    ),
    Mutant(
        name="s13_rotary_part_in_bf16",
        file="device/latent.py",
        before="                dot = tl.dot(q_rope, tl.trans(k_rope), dot, input_precision=PRECISION)\n",
        after="                q_rope = q_rope.to(tl.bfloat16).to(q.dtype)\n"
        "                k_rope = k_rope.to(tl.bfloat16).to(q.dtype)\n"
        "                dot = tl.dot(q_rope, tl.trans(k_rope), dot, input_precision=PRECISION)\n",
        outputs=("o", "lse"),
        modelled_on="precision: a cache that keeps its rotary part in bf16 whatever the type of the rest: latent cache: the rotary channels of queries and keys are rounded to bf16 before their product: logits are imprecise in fp16 and fp32; bf16, and caches without a rotary part, are right",
        subject="bundled-latent",
    ),
    Mutant(
        name="s13_ring_gradients_travel_in_16_bits",
        file="ring/passes.py",
        before="        gradients = Exchange(ring, gradients, owner).wait()  # a last step brings them home\n",
        after="        carried = [x.to(k.dtype) for x in gradients]  # a last step brings them home\n"
        "        gradients = [x.float() for x in Exchange(ring, carried, owner).wait()]\n",
        outputs=("dk", "dv"),
        modelled_on="zhuzilin/ring-flash-attention#42: precision: the sums of dK and dV of a ring are sent on in the dtype of k: they are rounded once for every rank that they pass, not once at the end (infinite beyond 65504 in fp16); fp32, one rank, dQ and the forward are right",
        subject="bundled-ring",
        needs=("backward",),
    ),
)
