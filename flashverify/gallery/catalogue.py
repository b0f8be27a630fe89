"""The releases of the gallery."""

from __future__ import annotations

from flashverify.gallery.release import Kernel, Release

__all__ = ["CATALOGUE", "release"]

CATALOGUE: tuple[Release, ...] = (
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
        kernels=(Kernel(name="attention", what="06-fused-attention.py: attention, causal, backward"),),
    ),
    Release(
        name="fasterkernels",
        distribution="fasterkernels",
        version="0.2.0",
        licence="MIT",
        bare=("fskernels", "fskernels.triton", "fskernels.paged_attn"),
        kernels=(
            Kernel(name="forward", what="fskernels.triton.triton_fa2.flash_attention_2_fwd: dense"),
            Kernel(
                name="decode",
                what="fskernels.triton.triton_gqa_decode.flash_decode_gqa_varlen: packed keys, GQA, sinks",
            ),
            Kernel(name="paged", what="fskernels.paged_attn.triton_paged_attn.paged_flash_decode: paged keys, GQA"),
        ),
    ),
    Release(
        name="vllm",
        distribution="vllm",
        version="0.33.0",
        licence="Apache-2.0",
        bare=("vllm", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.ops", "vllm.utils"),
        stubs=(
            *(
                "vllm.platforms",
                "vllm.envs",
                "vllm.logger",
                "vllm.triton_utils",
                "vllm.config",
                "vllm.utils.torch_utils",
            ),
            *("vllm.v1.attention.backends", "vllm.v1.kv_cache_layout", "vllm.v1.kv_cache_spec_registry"),
        ),
        kernels=(
            Kernel(name="prefill", what="context_attention_fwd: packed, causal, windows, sinks"),
            Kernel(name="unified", what="unified_attention: paged, causal, left windows, softcap, sinks"),
            Kernel(name="unified_alibi", what="unified_attention: paged, causal, left windows, ALiBi"),
            Kernel(name="decode", what="decode_attention_fwd: paged by token, split keys, softcap, LSE"),
            Kernel(name="merge", what="merge_attn_states: two partial results, LSE"),
        ),
    ),
    Release(
        name="sglang",
        distribution="sglang",
        version="0.5.23",
        licence="Apache-2.0",
        bare=("sglang", "sglang.srt", "sglang.kernels", "sglang.kernels.ops", "sglang.kernels.ops.attention"),
        stubs=("sglang.srt.utils", "sglang.srt.environ"),
        kernels=(
            Kernel(name="prefill", what="prefill_attention.context_attention_fwd: packed, causal"),
            Kernel(name="decode", what="decode_attention_fwd: paged by token, split keys, softcap, sinks"),
            Kernel(name="merge", what="merge_state_triton: two partial results, LSE"),
            Kernel(
                name="extend",
                what="extend_attention_fwd: cached and new tokens, softcap, sinks",
                module="sglang_extend",
            ),
        ),
    ),
    Release(
        name="conch",
        distribution="conch-triton-kernels",
        version="1.3",
        licence="Apache-2.0",
        kernels=(
            Kernel(name="varlen", what="conch.ops.attention.varlen_attention: paged, causal, softcap"),
            Kernel(name="paged", what="conch.ops.attention.paged_attention: paged decoding, split keys, softcap"),
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
            Kernel(name="decode", what="fla.ops.attn.decoding.attn_decoding_one_step: packed keys, sinks"),
        ),
    ),
    Release(
        name="flashinfer",
        distribution="flashinfer-python",
        version="0.7.2.post1",
        licence="Apache-2.0",
        bare=("flashinfer", "flashinfer.triton"),
        stubs=("flashinfer.triton.utils",),
        kernels=(
            Kernel(name="merge", what="flashinfer.triton.cascade.merge_state: two partial results, LSE in base 2"),
            Kernel(
                name="merge_several",
                what="flashinfer.triton.cascade.merge_states: stacked partial results, LSE in base 2",
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
            Kernel(name="flash", what="flash_attention_triton: causal, GQA, backward"),
            Kernel(name="window", what="flash_attention_triton: causal with a window, GQA, backward"),
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
        name="lmdeploy",
        distribution="lmdeploy",
        version="0.18.0",
        licence="Apache-2.0",
        bare=("lmdeploy", "lmdeploy.pytorch", "lmdeploy.pytorch.kernels", "lmdeploy.pytorch.kernels.cuda"),
        stubs=("lmdeploy.utils", "lmdeploy.messages"),
        kernels=(
            Kernel(name="prefill", what="flash_attn_varlen_func: packed, causal, left windows, softcap, ALiBi, sinks"),
            Kernel(
                name="paged", what="flash_attn_with_kvcache: paged decoding, split keys, left windows, softcap, sinks"
            ),
        ),
    ),
    Release(
        name="xformers",
        distribution="xformers",
        version="0.0.35",
        licence="BSD-3-Clause",
        bare=("xformers.ops",),
        kernels=(Kernel(name="splitk", what="fmha.triton_splitk.FwOp: split keys, LSE"),),
    ),
    Release(
        name="flash_attn",
        distribution="flash-attn",
        version="2.8.3.post2",
        licence="BSD-3-Clause",
        source=True,
        settings=(("FLASH_ATTENTION_SKIP_CUDA_BUILD", "TRUE"),),
        bare=("flash_attn", "flash_attn.flash_attn_triton_amd"),
        kernels=(Kernel(name="amd", what="flash_attn_triton_amd.fwd_prefill: causal, ALiBi, GQA, LSE"),),
    ),
    Release(
        name="flag_gems",
        distribution="flag-gems",
        version="5.0.2",
        licence="Apache-2.0",
        needs=("pyyaml",),
        bare=("flag_gems", "flag_gems.ops"),
        stubs=("flag_gems.utils", "flag_gems.ops.flash_api"),
        kernels=(Kernel(name="sdpa", what="ops.attention.scaled_dot_product_attention: causal, GQA, backward"),),
    ),
    Release(
        name="jvp_flash_attention",
        distribution="jvp-flash-attention",
        version="0.14.0",
        licence="MIT",
        kernels=(
            Kernel(name="whole", what="JVPAttn.fwd_dual: lengths that are multiples of 32, causal, backward"),
            Kernel(name="even", what="JVPAttn.fwd_dual: any even length from 32 on, causal"),
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
    Release(
        name="lightllm",
        distribution="lightllm",
        version="0.0.1",
        licence="Apache-2.0",
        bare=("lightllm", "lightllm.models", "lightllm.models.llama", "lightllm.models.llama.triton_kernel"),
        kernels=(
            Kernel(name="prefill", what="context_attention_fwd_no_prompt_cache: packed, causal"),
            Kernel(name="decode", what="gqa_decode_attention_fwd: paged by token, GQA"),
        ),
    ),
)


def release(name: str) -> Release:
    """The release of that name."""
    return next(each for each in CATALOGUE if each.name == name)
