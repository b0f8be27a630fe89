"""Defects of the softmax, its gradients, tails and heads."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["SOFTMAX"]

_FORWARD_VISIBLE = "i[:, None], j[None, :], q_end, k_end, band, bits, bits_start, MASK, part != FULL"
_ROUNDED_UP = _FORWARD_VISIBLE.replace("k_end", "tl.cdiv(k_end, BLOCK_N) * BLOCK_N")

SOFTMAX = (
    Mutant(
        name="padded_keys_in_forward",
        file="device/forward.py",
        before=_FORWARD_VISIBLE,
        after=_ROUNDED_UP,
        outputs=("o", "lse"),
        modelled_on="thu-ml/SageAttention 39172834: padded keys join the softmax with score 0",
        semantics="padded-keys-zero-logits",
    ),
    Mutant(
        name="padded_keys_in_backward",
        file="device/dkdv.py",
        before="pT = weights(zT, lse2, see, part != FULL)",
        after="pT = weights(zT, lse2, see, False)",
        outputs=("dv",),
        modelled_on="ROCm/aiter#3551: the weights are recomputed without the mask; NaN when LSE is very negative",
        semantics="weights-unmasked",
    ),
    Mutant(
        name="lse_in_the_wrong_base",
        file="results.py",
        before="return self.lse2 * math.log(2)",
        after="return self.lse2 * 1",
        outputs=("lse",),
        modelled_on="flashinfer-ai/flashinfer#4485: the base of LSE depends on the backend",
        semantics="lse-base-2",
    ),
    Mutant(
        name="alpha_not_applied",
        file="device/forward.py",
        before="v, acc * alpha[:, None], input_precision",
        after="v, acc, input_precision",
        outputs=("o",),
        modelled_on="the rescale of the accumulator forgotten when the running maximum grows",
        semantics="alpha-not-applied",
    ),
    Mutant(
        name="dk_without_scale",
        file="device/dkdv.py",
        before="dk * terms.scale",
        after="dk",
        outputs=("dk",),
        modelled_on="fla-org/flash-linear-attention#47: scale wrong in the backward",
        semantics="gradient-without-scale",
    ),
    Mutant(
        name="wrong_gqa_head",
        file="device/forward.py",
        before="k_head = head_of(k_view, b, h // sizes.group, k0, ALIGNED)",
        after="k_head = head_of(k_view, b, h % (sizes.heads // sizes.group), k0, ALIGNED)",
        outputs=("o", "lse"),
        modelled_on="HazyResearch/HipKittens#22: the group size used as modulus",
        semantics="head-modulo",
    ),
    Mutant(
        name="delta_missing",
        file="device/dq.py",
        before="score_gradient(p, dp, delta, see, part != FULL)",
        after="score_gradient(p, dp, 0.0, see, part != FULL)",
        outputs=("dq",),
        modelled_on="the softmax Jacobian without its rank-one part",
        semantics="ds-is-dp",
    ),
    Mutant(
        name="masked_row_averages",
        file="device/softmax.py",
        before='z = tl.where(see, z, float("-inf"))',
        after="z = tl.where(see, z, -1.0e30)",
        outputs=("o", "lse"),
        modelled_on="vllm-project/vllm#4405: a finite sentinel makes a fully masked row average its keys",
        semantics="empty-rows-average",
    ),
    Mutant(
        name="padding_of_v_multiplied",
        file="device/forward.py",
        before="v = load_tile(v_head, j, k_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)",
        after="v = load_tile(v_head, j, sk, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)",
        outputs=("o",),
        modelled_on="vllm-project/vllm#936: rows of V past the context are multiplied by 0; 0 * NaN",
        semantics="padding-of-v-multiplied",
    ),
    Mutant(
        name="running_max_starts_at_zero",
        file="device/forward.py",
        before='m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)',
        after="m_i = tl.full([BLOCK_M], 0.0, tl.float32)",
        outputs=("o", "lse"),
        modelled_on="Dao-AILab/flash-attention a24fad99: the running maximum clamped from below",
        semantics="maximum-from-zero",
    ),
    Mutant(
        name="tail_row_not_stored",
        file="device/forward.py",
        before="store_tile(o_head, acc / divisor[:, None], i, sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)",
        after="store_tile(o_head, acc / divisor[:, None], i, sq - sq % 2, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)",
        outputs=("o",),
        modelled_on="nntrainer/nntrainer#3989: the last rows are never computed",
        semantics="not-written",
    ),
)
