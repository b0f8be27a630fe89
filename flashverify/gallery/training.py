"""Releases whose kernels train models: forward and, of most, backward."""

from __future__ import annotations

from flashverify.gallery.release import Kernel, Release

__all__ = ["TRAINING"]

TRAINING: tuple[Release, ...] = (
    Release(
        name="torch",
        distribution="",
        version="2.13.0",
        licence="BSD-3-Clause",
        kernels=(
            Kernel(name="sdpa_flash", what="scaled_dot_product_attention, flash backend: causal, backward"),
            Kernel(name="sdpa_math", what="scaled_dot_product_attention, math backend: causal, backward"),
            Kernel(
                name="sdpa_mask",
                what="scaled_dot_product_attention with a mask, math backend: windows, patterns, backward",
            ),
            Kernel(
                name="flex",
                what="flex_attention with a block mask: causal, windows, packed, patterns, ALiBi, softcap, LSE",
            ),
            Kernel(name="flex_score", what="flex_attention with score_mod alone: the same"),
        ),
    ),
    Release(
        name="tutorial",
        distribution="",
        version="",
        licence="MIT",
        file=True,
        kernels=(
            Kernel(
                name="attention",
                what="06-fused-attention.py: attention, causal, backward",
                findings=("defect: [the mask constant](gallery/tutorial-mask-constant.md)",),
            ),
        ),
    ),
    Release(
        name="fla",
        distribution="fla-core",
        version="0.6.0",
        licence="MIT",
        needs=("einops",),
        bare=("fla.ops", "fla.ops.attn"),
        kernels=(
            Kernel(
                name="parallel",
                what="fla.ops.attn.parallel.parallel_attn: causal, left windows, sinks, packed, backward",
            ),
            Kernel(
                name="decode",
                what="fla.ops.attn.decoding.attn_decoding_one_step: packed keys, sinks",
                findings=("defect: [Q and K are multiplied in 16 bits](gallery/fp16-products.md)",),
            ),
        ),
    ),
    Release(
        name="aule",
        distribution="aule-attention",
        version="0.5.0",
        licence="MIT",
        bare=("aule",),
        kernels=(
            Kernel(
                name="flash",
                what="flash_attention_triton: causal, GQA, backward",
                findings=(
                    "defect: [delta is read at the wrong place with one head](gallery/aule-one-head.md)",
                    "left open: 16-bit inputs are widened to fp32 and multiplied in TF32, which no form declares",
                ),
            ),
            Kernel(
                name="window",
                what="flash_attention_triton: causal with a window, GQA, backward",
                findings=("defect: [NaN forward, ignored backward](gallery/aule-window.md)",),
            ),
        ),
    ),
    Release(
        name="flash_attention_triton",
        distribution="flash-attention-triton",
        version="0.1.1",
        licence="MIT",
        kernels=(Kernel(name="causal", what="flash_attention_v2: causal, backward"),),
    ),
    Release(
        name="flash_attn",
        distribution="flash-attn",
        version="2.8.3.post2",
        licence="BSD-3-Clause",
        source=True,
        settings=(("FLASH_ATTENTION_SKIP_CUDA_BUILD", "TRUE"),),
        bare=("flash_attn", "flash_attn.flash_attn_triton_amd"),
        kernels=(
            Kernel(
                name="amd",
                what="flash_attn_triton_amd.fwd_prefill: causal, ALiBi, GQA, LSE",
                findings=("defect: [zeros are stored past the head](gallery/flash-attn-amd-padded-head.md)",),
            ),
        ),
    ),
    Release(
        name="flag_gems",
        distribution="flag-gems",
        version="5.0.2",
        licence="Apache-2.0",
        needs=("pyyaml",),
        bare=("flag_gems", "flag_gems.ops"),
        stubs=("flag_gems.utils", "flag_gems.ops.flash_api"),
        kernels=(
            Kernel(
                name="sdpa",
                what="ops.attention.scaled_dot_product_attention: causal, GQA, backward",
                findings=(
                    "defect: [gradients are causal whatever was asked for](gallery/flag-gems-noncausal-backward.md)",
                ),
            ),
        ),
    ),
    Release(
        name="jvp_flash_attention",
        distribution="jvp-flash-attention",
        version="0.14.0",
        licence="MIT",
        kernels=(
            Kernel(
                name="whole",
                what="JVPAttn.fwd_dual: lengths that are multiples of 32, causal, backward",
                findings=("defect: [the mask constant](gallery/jvp-flash-attention-mask-constant.md)",),
            ),
            Kernel(
                name="even",
                what="JVPAttn.fwd_dual: any even length from 32 on, causal",
                findings=(
                    "defect: [lengths that are no multiple of the tile](gallery/jvp-flash-attention-even-lengths.md)",
                    "defect: [the mask constant](gallery/jvp-flash-attention-mask-constant.md)",
                ),
            ),
        ),
    ),
    Release(
        name="liger_kernel",
        distribution="liger-kernel",
        version="0.8.5",
        licence="BSD-2-Clause",
        bare=("liger_kernel", "liger_kernel.ops"),
        kernels=(
            Kernel(name="neighborhood", what="LigerFusedNeighborhoodAttentionFunction: symmetric windows, backward"),
        ),
    ),
)
