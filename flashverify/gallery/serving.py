"""Releases whose kernels serve models: prefill, decoding and merges, forward alone."""

from __future__ import annotations

from flashverify.gallery.release import Kernel, Release

__all__ = ["SERVING"]

SERVING: tuple[Release, ...] = (
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
                findings=("defect: [the sink is added without an exponential](gallery/fasterkernels-sink.md)",),
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
            Kernel(
                name="prefill",
                what="context_attention_fwd: packed, causal, windows, sinks",
                findings=("defect: [masks with -1e8](gallery/vllm-prefill-sentinel.md)",),
            ),
            Kernel(
                name="unified",
                what="unified_attention: paged, causal, left windows, softcap, sinks",
                findings=(
                    "defect: [reads the block table past its end](gallery/vllm-block-table.md)",
                    "harmless: a lane of equal values is stored twice (same page)",
                ),
            ),
            Kernel(
                name="unified_alibi",
                what="unified_attention: paged, causal, left windows, ALiBi",
                findings=(
                    "defect: [reads the block table past its end](gallery/vllm-block-table.md)",
                    "harmless: a lane of equal values is stored twice (same page)",
                ),
            ),
            Kernel(
                name="decode",
                what="decode_attention_fwd: paged by token, split keys, softcap, LSE",
                findings=("defect: [Q and K are multiplied in 16 bits](gallery/fp16-products.md)",),
            ),
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
            Kernel(
                name="prefill",
                what="prefill_attention.context_attention_fwd: packed, causal",
                findings=("defect: [a masked logit that overflows gives NaN](gallery/sglang-additive-mask.md)",),
            ),
            Kernel(
                name="decode",
                what="decode_attention_fwd: paged by token, split keys, softcap, sinks",
                findings=("defect: [Q and K are multiplied in 16 bits](gallery/fp16-products.md)",),
            ),
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
            Kernel(
                name="varlen",
                what="conch.ops.attention.varlen_attention: paged, causal, softcap",
                findings=(
                    "defect: [the causal mask ignores cached keys](gallery/conch-causal.md)",
                    "defect: [state in 16 bits](gallery/conch-16-bit-state.md)",
                ),
            ),
            Kernel(
                name="paged",
                what="conch.ops.attention.paged_attention: paged decoding, split keys, softcap",
                findings=("defect: [state in 16 bits](gallery/conch-16-bit-state.md)",),
            ),
        ),
    ),
    Release(
        name="sageattention",
        distribution="sageattention",
        version="1.0.6",
        licence="BSD-3-Clause",
        bare=("sageattention",),
        kernels=(
            Kernel(name="int8", what="attn_qk_int8_per_block: Q and K in int8, keys that are multiples of 64"),
            Kernel(
                name="int8_any",
                what="attn_qk_int8_per_block: any number of keys",
                findings=("defect: [keys behind the last one count](gallery/sageattention-tail.md)",),
            ),
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
                findings=("defect: [an initial state with a weight](gallery/flashinfer-merge-states.md)",),
            ),
        ),
    ),
    Release(
        name="lmdeploy",
        distribution="lmdeploy",
        version="0.18.0",
        licence="Apache-2.0",
        bare=("lmdeploy", "lmdeploy.pytorch", "lmdeploy.pytorch.kernels", "lmdeploy.pytorch.kernels.cuda"),
        stubs=("lmdeploy.utils", "lmdeploy.messages"),
        kernels=(
            Kernel(
                name="prefill",
                what="flash_attn_varlen_func: packed, causal, left windows, softcap, ALiBi, sinks",
                findings=("defect: [ALiBi is added after the maximum](gallery/lmdeploy-alibi-maximum.md)",),
            ),
            Kernel(
                name="paged",
                what="flash_attn_with_kvcache: paged decoding, split keys, left windows, softcap, sinks",
                findings=(
                    "defect: [what lies behind the last key of a page is multiplied](gallery/lmdeploy-page-tail.md)",
                ),
            ),
        ),
    ),
    Release(
        name="xformers",
        distribution="xformers",
        version="0.0.35",
        licence="BSD-3-Clause",
        bare=("xformers.ops",),
        kernels=(
            Kernel(
                name="splitk",
                what="fmha.triton_splitk.FwOp: split keys, LSE",
            ),
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
