"""Subjects made of what others wrote: a callable with the signature of a known package becomes a subject in one call.

    from flash_attn import flash_attn_func
    from flashverify.adapters import flash_attn

    SUBJECT = flash_attn(flash_attn_func)

Each adapter takes the callable itself, so that any package with such a signature is wired, and returns a subject with a declaration of
what the signature can express. Fields of `Supports` are replaced by name, those of `Contract` by `contract={...}`, the form by `form=`.
"""

from flashverify.adapters.flash_attention import flash_attn, flash_attn_varlen, flash_attn_with_kvcache
from flashverify.adapters.flashinfer import (
    flashinfer_decode,
    flashinfer_prefill,
    flashinfer_ragged,
    flashinfer_single,
)
from flashverify.adapters.flex import flex_attention
from flashverify.adapters.merges import merge_attn_states, merge_state, merge_states
from flashverify.adapters.ring import ring_merge
from flashverify.adapters.scaled_dot_product import sdpa
from flashverify.adapters.sglang import sglang_decode, sglang_extend, sglang_prefill
from flashverify.adapters.tutorial import triton_tutorial
from flashverify.adapters.vllm import vllm_prefix_prefill, vllm_unified_attention
from flashverify.adapters.xformers import xformers_attention

__all__ = [
    "flash_attn",
    "flash_attn_varlen",
    "flash_attn_with_kvcache",
    "flashinfer_decode",
    "flashinfer_prefill",
    "flashinfer_ragged",
    "flashinfer_single",
    "flex_attention",
    "merge_attn_states",
    "merge_state",
    "merge_states",
    "ring_merge",
    "sdpa",
    "sglang_decode",
    "sglang_extend",
    "sglang_prefill",
    "triton_tutorial",
    "vllm_prefix_prefill",
    "vllm_unified_attention",
    "xformers_attention",
]
