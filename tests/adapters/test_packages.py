"""The adapters on the packages themselves, where these are installed: `pytest tests/adapters/test_packages.py -rs` says what was skipped."""

import importlib

import pytest

from flashverify import adapters, judge_case, parse_case
from flashverify.subjects import has_gpu

SIZES = "heads_q=4 heads_kv=2 dim_qk=64 dim_v=64 dtype=fp16"
PAGED = f"{SIZES} backward=no"
FLEX = "torch.nn.attention.flex_attention"
PACKAGES = {
    "flash_attn.flash_attn_func": (adapters.flash_attn, True, f"seq_q=33 seq_k=65 causal=bottom-right {SIZES}"),
    "flash_attn.flash_attn_varlen_func": (adapters.flash_attn_varlen, True, f"seq_q=33 seq_k=65 klen=50 {SIZES}"),
    "flash_attn.flash_attn_with_kvcache": (
        adapters.flash_attn_with_kvcache,
        True,
        f"batch=2 seq_q=1 seq_k=300 klen=300,17 page_size=256 {PAGED}",
    ),
    "xformers.ops.memory_efficient_attention": (
        adapters.xformers_attention,
        True,
        f"seq_q=33 seq_k=33 causal=top-left {SIZES}",
    ),
    "vllm.v1.attention.ops.triton_unified_attention.unified_attention": (
        adapters.vllm_unified_attention,
        True,
        f"batch=2 seq_q=3 seq_k=40 klen=40,17 causal=bottom-right page_size=16 {PAGED}",
    ),
    "sglang.kernels.ops.attention.decode_attention.decode_attention_fwd": (
        adapters.sglang_decode,
        False,
        f"batch=2 seq_q=1 seq_k=40 klen=40,17 page_size=16 {PAGED}",
    ),
    "sglang.kernels.ops.attention.extend_attention.extend_attention_fwd": (
        adapters.sglang_extend,
        False,
        f"batch=2 seq_q=3 seq_k=40 klen=40,17 causal=bottom-right page_size=16 {PAGED}",
    ),
    "sglang.kernels.ops.attention.merge_state.merge_state_triton": (
        lambda kernel: adapters.merge_state(kernel, lse_base="e"),
        False,
        f"seq_q=9 seq_k=13 launch=first_percent:25 {PAGED}",
    ),
    "flashinfer.merge_state": (adapters.merge_state, True, f"seq_q=9 seq_k=13 launch=first_percent:25 {PAGED}"),
    "flashinfer.merge_states": (adapters.merge_states, True, f"seq_q=9 seq_k=13 launch=splits:3 {PAGED}"),
    "flashinfer.BatchDecodeWithPagedKVCacheWrapper": (
        adapters.flashinfer_decode,
        True,
        f"batch=2 seq_q=1 seq_k=40 klen=40,17 page_size=16 {PAGED}",
    ),
    f"{FLEX}.flex_attention": (
        lambda kernel: adapters.flex_attention(kernel, compiled=True),
        True,
        f"seq_q=130 seq_k=130 causal=top-left {SIZES}",
    ),
}


@pytest.mark.parametrize("path", PACKAGES)
def test_a_package_is_right_through_its_adapter(path):
    wire, needs_gpu, text = PACKAGES[path]
    module, _, name = path.rpartition(".")
    if needs_gpu and not has_gpu():
        pytest.skip(f"{path} needs an NVIDIA GPU")
    pytest.importorskip(module.split(".")[0], reason=f"{module} is not installed", exc_type=ImportError)
    kernel = getattr(importlib.import_module(module), name)
    result = judge_case(wire(kernel), parse_case(f"fv1 {text}"), checks=("accuracy", "nonfinite", "padding"))

    assert result.unsupported is None
    assert result.failures == ()
