"""Held-out defects of precision, the eleventh set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s11_weights_by_way_of_bf16",
        file="device/forward.py",
        before="                acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)",
        after="                p = p.to(tl.bfloat16)\n"
        "                acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)",
        outputs=("o", "dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="precision: a type that is written into the kernel: the weights are rounded to bf16 before the product with V, whatever the dtype of the inputs: O has bf16's precision in fp16 and fp32; bf16, the LSE and dV are right, dQ and dK follow the O that is imprecise",
    ),
    Mutant(
        name="s11_dq_summed_in_16_bits",
        file="device/dq.py",
        before="                dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)  # [BLOCK_M, BLOCK_D]\n",
        after="                dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)  # [BLOCK_M, BLOCK_D]\n"
        "                dq = dq.to(k.dtype).to(tl.float32)\n",
        outputs=("dq",),
        modelled_on="precision: a running sum that is stored as the result is: dQ is rounded to the dtype of q after every tile of keys, before it is scaled (infinite beyond 65504 in fp16); fp32, O, dK and dV are right, and 16 bits are nearly so with one tile of keys",
    ),
    Mutant(
        name="s11_sinks_in_the_dtype_of_q",
        file="terms.py",
        before="        sink=None if options.sink is None else options.sink.contiguous(),\n",
        after="        sink=None if options.sink is None else options.sink.to(dtype).float().contiguous(),\n",
        outputs=_EVERY,
        modelled_on="precision: a parameter that is cast with its model: the sinks are rounded to the dtype of q (infinite beyond 65504 in fp16), in forward and backward alike; right in fp32 and for sinks that 16 bits hold",
        needs=("sink",),
    ),
    Mutant(
        name="s11_positions_in_bf16",
        file="device/logits.py",
        before="        z -= head.slope_log2 * tl.abs(i + head.shift - j).to(tl.float32)\n",
        after="        row = (i + head.shift).to(tl.float32).to(tl.bfloat16).to(tl.float32)\n"
        "        z -= head.slope_log2 * tl.abs(row - j.to(tl.float32).to(tl.bfloat16).to(tl.float32))\n",
        outputs=_EVERY,
        modelled_on="precision: positions in the type of a model: ALiBi takes the numbers of rows and keys rounded to bf16, whose whole numbers end at 256: from row or key 257 on distances are off by 1, from 512 on by up to 2, and so on, in all kernels and dtypes; up to 256 all is right",
        needs=("alibi",),
    ),
)
