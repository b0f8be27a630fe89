"""Adapters for the signatures of flash_attn and of Triton's tutorial, on kernels in plain torch: right, and with a defect each."""

import pytest
import torch

from flashverify import judge_case, parse_case
from flashverify.adapters import flash_attn, flash_attn_varlen, flash_attn_with_kvcache, triton_tutorial
from flashverify.errors import UsageError
from tests.adapters.attention import CHECKS, attend, filled, sequences

HERE = {"device": "cpu", "dtypes": ("fp32",)}


def dense(q, k, v, softmax_scale, causal, window_size, softcap=0.0, alibi_slopes=None, *, return_attn_probs=False):
    given = {"causal": causal, "window": window_size, "softcap": softcap, "slopes": alibi_slopes}
    found = [attend(*x, softmax_scale, **given) for x in zip(q, k, v, strict=True)]
    return torch.stack([o for o, _ in found]), torch.stack([lse.T for _, lse in found]), None


def varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale, causal, return_softmax_lse):
    assert max_seqlen_q >= (cu_seqlens_q[1:] - cu_seqlens_q[:-1]).max()
    assert max_seqlen_k >= (cu_seqlens_k[1:] - cu_seqlens_k[:-1]).max()
    o, lse = sequences(cu_seqlens_q, cu_seqlens_k, lambda i, j: attend(q[i], k[j], v[j], softmax_scale, causal=causal))
    return filled(o, len(q)), filled(lse, len(q)).T


def cached(
    q, k_cache, v_cache, *, cache_seqlens, block_table=None, softmax_scale, causal, window_size, return_softmax_lse
):
    found = []
    for b, length in enumerate(cache_seqlens.tolist()):
        pages = slice(b, b + 1) if block_table is None else block_table[b, : -(-length // k_cache.shape[1])].long()
        k, v = (cache[pages].flatten(0, 1)[:length] for cache in (k_cache, v_cache))
        found.append(attend(q[b], k, v, softmax_scale, causal=causal, window=window_size))
    return torch.stack([o for o, _ in found]), torch.stack([lse.T for _, lse in found])


def tutorial(q, k, v, causal, sm_scale):
    found = [
        attend(*(x.transpose(0, 1) for x in each), sm_scale, causal=causal)[0] for each in zip(q, k, v, strict=True)
    ]
    return torch.stack(found).transpose(1, 2)


SIZES = "heads_q=4 heads_kv=2 dim_qk=8 dim_v=8 dtype=fp32"
KERNELS = {
    "dense": lambda kernel=dense: flash_attn(kernel, **HERE),
    "varlen": lambda kernel=varlen: flash_attn_varlen(kernel, **HERE),
    "paged": lambda kernel=cached: flash_attn_with_kvcache(kernel, page_sizes=(16,), freed_pages=False, **HERE),
    "cached": lambda kernel=cached: flash_attn_with_kvcache(kernel, paged=False, **HERE),
    "tutorial": lambda kernel=tutorial: triton_tutorial(kernel, seq_multiple=1, gqa=True, **HERE),
}
CASES = {
    "dense": (
        f"fv1 batch=2 seq_q=7 seq_k=9 causal=bottom-right window=3,1 softcap=30 alibi=yes layout=bshd gap=8 {SIZES}",
        f"fv1 batch=2 seq_q=9 seq_k=5 window=2,1 window_align=bottom-right {SIZES}",
        f"fv1 seq_q=6 seq_k=6 alibi=yes {SIZES}",
    ),
    "varlen": (
        f"fv1 seq_q=12 seq_k=11 packed=0,5,5,9/0,4,6,9 causal=bottom-right padding=nan {SIZES}",
        f"fv1 batch=3 seq_q=5 seq_k=9 qlen=5,0,2 klen=9,4,0 {SIZES}",
    ),
    "paged": (
        f"fv1 batch=3 seq_q=2 seq_k=40 klen=40,0,17 page_size=16 kept_pages=yes causal=bottom-right window=9,* backward=no {SIZES}",
    ),
    "cached": (f"fv1 batch=3 seq_q=2 seq_k=40 klen=40,0,17 causal=bottom-right backward=no padding=nan {SIZES}",),
    "tutorial": (f"fv1 batch=2 seq_q=16 seq_k=16 causal=top-left {SIZES}".replace("=8", "=16"),),
}


def failures(kernel, text):
    case = parse_case(text)
    assert kernel.supports.refusal(case) is None
    # These kernels keep P: their backward does not start from the rounded O.
    return [v for v in judge_case(kernel, case, checks=CHECKS).failures if v.mode != "conditional"]


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in CASES.items() for text in texts])
def test_a_right_kernel_of_the_signature_is_right(name, text):
    assert failures(KERNELS[name](), text) == []


def changed(kernel, **fixed):
    def wrong(*args, **given):
        return kernel(*args, **{**given, **{n: change(given[n]) for n, change in fixed.items()}})

    wrong.__signature__ = __import__("inspect").signature(kernel)
    return wrong


def shifted_table(q, k_cache, v_cache, *, block_table, **given):
    return cached(q, k_cache, v_cache, block_table=block_table.roll(1, 0), **given)


WRONG = {
    "dense": changed(dense, window_size=lambda window: (window[0] + 1, window[1])),
    "varlen": changed(varlen, cu_seqlens_k=lambda starts: (starts - 1).clamp(min=0)),
    "paged": changed(cached, block_table=lambda table: table.roll(1, 0)),
    "cached": changed(cached, cache_seqlens=lambda lengths: (lengths - 1).clamp(min=0)),
    "tutorial": lambda q, k, v, causal, sm_scale: tutorial(q, k, v, False, sm_scale),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_defect_is_found(name):
    assert {v.check for v in failures(KERNELS[name](WRONG[name]), CASES[name][0])} & {"accuracy", "nonfinite"}


def test_what_the_signature_lacks_is_not_declared():
    def plain(q, k, v, softmax_scale, causal):
        return dense(q, k, v, softmax_scale, causal, (-1, -1))[0]

    mine = flash_attn(plain, **HERE)

    assert (mine.supports.masks, mine.supports.logits, mine.contract.lse_base) == (("causal",), (), None)
    assert failures(mine, f"fv1 batch=2 seq_q=7 seq_k=9 causal=bottom-right {SIZES}") == []


def test_alibi_that_is_aligned_elsewhere_is_not_given():
    mine = KERNELS["dense"]()

    assert "as many keys as rows" in mine.supports.refusal(parse_case(f"fv1 seq_q=3 seq_k=5 alibi=yes {SIZES}"))
    assert mine.supports.refusal(parse_case(f"fv1 seq_q=3 seq_k=5 alibi=yes causal=bottom-right {SIZES}")) is None


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="dims=64 is not accepted: Supports has no such field"):
        flash_attn(dense, dims=64)
