"""Adapters for the signatures of xformers, vLLM, SGLang and FlashInfer, on kernels in plain torch: right, and with a defect each."""

import types

import pytest
import torch

from flashverify import adapters, judge_case, parse_case
from flashverify.adapters.declaration import accepts
from tests.adapters.attention import CHECKS, attend, filled, pairs, sequences

HERE = {"device": "cpu", "dtypes": ("fp32",)}
LOG2E = 1.4426950408889634


class Block:
    """Of xformers' masks what its adapter uses."""

    def __init__(self, q, k, causal=None):
        self.lengths, self.causal = (q, k), causal

    @classmethod
    def from_seqlens(cls, q, k):
        return cls(q, k)

    def make_causal(self):
        return Block(*self.lengths, "top-left")

    def make_causal_from_bottomright(self):
        return Block(*self.lengths, "bottom-right")


MASKS = types.SimpleNamespace(
    BlockDiagonalMask=Block,
    LowerTriangularMask=lambda: "top-left",
    LowerTriangularFromBottomRightMask=lambda: "bottom-right",
)


def memory_efficient(q, k, v, attn_bias=None, p=0.0, scale=None):
    heads = q.shape[2:-1]
    if q.dim() == 5:
        assert k.stride(3) == 0
        q, k, v = (x.flatten(2, 3) for x in (q, k, v))
        attn_bias = attn_bias.flatten(1, 2) if isinstance(attn_bias, torch.Tensor) else attn_bias
    s = torch.einsum("bihd,bjhd->bhij", q, k) * scale
    if isinstance(attn_bias, torch.Tensor):
        s = s + attn_bias
    elif attn_bias is not None:
        s = s.masked_fill(~seen(attn_bias, *s.shape[2:]), float("-inf"))
    return torch.einsum("bhij,bjhd->bihd", torch._safe_softmax(s, -1), v).unflatten(2, heads)


def seen(mask, rows, keys):
    if isinstance(mask, str):
        return torch.ones(rows, keys, dtype=torch.bool).tril(0 if mask == "top-left" else keys - rows)
    blocks = [
        seen(mask.causal, i, j) if mask.causal else torch.ones(i, j, dtype=torch.bool)
        for i, j in zip(*mask.lengths, strict=True)
    ]
    return torch.block_diag(*blocks).bool()


def unified(
    *,
    q,
    k,
    v,
    out,
    cu_seqlens_q,
    seqused_k,
    softmax_scale,
    window_size,
    block_table,
    softcap,
    alibi_slopes=None,
    sinks=None,
):
    given = {"causal": True, "window": window_size, "softcap": softcap, "slopes": alibi_slopes, "sink": sinks}
    for b, (i, j) in enumerate(pairs(cu_seqlens_q)):
        pages = block_table[b, : -(-int(seqused_k[b]) // k.shape[1])].long()
        keys = (cache[pages].flatten(0, 1)[: seqused_k[b]] for cache in (k, v))
        out[i:j] = attend(q[i:j], *keys, softmax_scale, **given)[0]


def prefix(
    *,
    q,
    k,
    v,
    o,
    k_cache,
    v_cache,
    b_loc,
    b_start_loc,
    b_seq_len,
    max_input_len,
    sliding_window,
    sm_scale,
    alibi_slopes,
):
    for b, (i, j) in enumerate(pairs(b_start_loc)):
        before = int(b_seq_len[b]) - (j - i)
        pages = b_loc[b, : -(-before // k_cache.shape[3])].long()
        old_k = k_cache[pages].permute(0, 3, 1, 2, 4).flatten(3).flatten(0, 1)[:before]
        old_v = v_cache[pages].permute(0, 3, 1, 2).flatten(0, 1)[:before]
        keys = (torch.cat(x) for x in ((old_k, k[i:j]), (old_v, v[i:j])))
        o[i:j] = attend(q[i:j], *keys, sm_scale, causal=True, window=(sliding_window - 1, -1), slopes=alibi_slopes)[0]


def decode(
    q,
    k_buffer,
    v_buffer,
    o,
    kv_indptr,
    kv_indices,
    attn_logits,
    attn_lse,
    num_kv_splits,
    max_kv_splits,
    sm_scale,
    logit_cap,
):
    assert attn_logits.shape == (*attn_lse.shape, v_buffer.shape[2])
    assert attn_lse.shape == (len(q), q.shape[1], max_kv_splits)
    for b, (i, j) in enumerate(pairs(kv_indptr)):
        keys = (pool[kv_indices[i:j].long()] for pool in (k_buffer, v_buffer))
        o[b] = attend(q[b : b + 1], *keys, sm_scale, softcap=logit_cap)[0][0]


def extend(
    q_extend, k_extend, v_extend, o_extend, k_buffer, v_buffer, qo_indptr, kv_indptr, kv_indices, sm_scale, logit_cap
):
    for (i, j), (a, b) in zip(pairs(qo_indptr), pairs(kv_indptr), strict=True):
        place = kv_indices[a:b].long()
        keys = (torch.cat((pool[place], new[i:j])) for pool, new in ((k_buffer, k_extend), (v_buffer, v_extend)))
        o_extend[i:j] = attend(q_extend[i:j], *keys, sm_scale, causal=True, softcap=logit_cap)[0]


def prefill(q, k, v, o, b_start_loc, b_seq_len, max_input_len, is_causal=True, sm_scale=None):
    for i, n in zip(b_start_loc.tolist(), b_seq_len.tolist(), strict=True):
        o[i : i + n] = attend(*(x[i : i + n] for x in (q, k, v)), sm_scale, causal=is_causal)[0]


class Decode:
    def __init__(self, workspace, kv_layout):
        assert workspace.dtype == torch.uint8
        self.turned = kv_layout == "HND"

    def plan(
        self, indptr, indices, last, heads, kv_heads, dim, page, *, q_data_type, sm_scale, window_left, logits_soft_cap
    ):
        self.plan_of(torch.arange(len(indptr)), indptr, indices, last, page, sm_scale, window_left, logits_soft_cap)

    def plan_of(self, rows, indptr, indices, last, page, scale, left, cap, causal=True):
        counts = ((indptr[1:] - indptr[:-1] - 1).clamp(min=0) * page + last).tolist()
        self.keys = [(indices[a:b].long(), n) for (a, b), n in zip(pairs(indptr), counts, strict=True)]
        self.rows, self.given = pairs(rows), (scale, {"window": (left, -1), "softcap": cap, "causal": causal})

    def run(self, q, caches, return_lse):
        scale, given = self.given
        k, v = (x.transpose(1, 2) if self.turned else x for x in caches)
        found = [
            attend(q[i:j], *(x[pages].flatten(0, 1)[:n] for x in (k, v)), scale, **given)
            for (i, j), (pages, n) in zip(self.rows, self.keys, strict=True)
        ]
        return torch.cat([o for o, _ in found]), torch.cat([lse for _, lse in found]) * LOG2E


class Prefill(Decode):
    def plan(self, rows, indptr, indices, last, heads, kv_heads, dim, page, *, causal, q_data_type, **given):
        self.plan_of(rows, indptr, indices, last, page, *given.values(), causal=causal)


class Ragged(Decode):
    def plan(self, rows, keys, heads, kv_heads, dim, *, causal, q_data_type, sm_scale, window_left, logits_soft_cap):
        given = {"window": (window_left, -1), "softcap": logits_soft_cap, "causal": causal}
        self.function = lambda q, k, v: sequences(rows, keys, lambda i, j: attend(q[i], k[j], v[j], sm_scale, **given))

    def run(self, q, k, v, return_lse):
        o, lse = self.function(q, k, v)
        return filled(o, len(q)), filled(lse * LOG2E, len(q))


def single(q, k, v, *, causal, sm_scale, window_left, logits_soft_cap, return_lse):
    o, lse = attend(q, k, v, sm_scale, causal=causal, window=(window_left, -1), softcap=logits_soft_cap)
    return o, lse * LOG2E


SIZES = "heads_q=4 heads_kv=2 dim_qk=16 dim_v=16 dtype=fp32"
PAGED = f"batch=3 seq_k=40 page_size=16 kept_pages=yes backward=no {SIZES}"
KERNELS = {
    "xformers": (memory_efficient, lambda kernel: adapters.xformers_attention(kernel, MASKS, **HERE)),
    "unified": (unified, lambda kernel: adapters.vllm_unified_attention(kernel, freed_pages=False, **HERE)),
    "prefix": (prefix, lambda kernel: adapters.vllm_prefix_prefill(kernel, freed_pages=False, **HERE)),
    "decode": (decode, lambda kernel: adapters.sglang_decode(kernel, **HERE)),
    "extend": (extend, lambda kernel: adapters.sglang_extend(kernel, **HERE)),
    "prefill": (prefill, lambda kernel: adapters.sglang_prefill(kernel, **HERE)),
    "planned decode": (Decode, lambda kernel: adapters.flashinfer_decode(kernel, kv_layout="HND", **HERE)),
    "planned prefill": (Prefill, lambda kernel: adapters.flashinfer_prefill(kernel, freed_pages=False, **HERE)),
    "ragged": (Ragged, lambda kernel: adapters.flashinfer_ragged(kernel, **HERE)),
    "single": (single, lambda kernel: adapters.flashinfer_single(kernel, **HERE)),
}
CASES = {
    "xformers": (
        f"fv1 seq_q=12 seq_k=15 packed=0,5,9/0,6,13 causal=bottom-right padding=nan {SIZES}",
        f"fv1 batch=2 seq_q=5 seq_k=9 causal=top-left bias=full {SIZES}",
        f"fv1 batch=2 seq_q=5 seq_k=9 causal=bottom-right {SIZES}",
    ),
    "unified": (f"fv1 seq_q=3 klen=40,0,17 causal=bottom-right window=9,* softcap=30 alibi=yes sink=yes {PAGED}",),
    "prefix": (f"fv1 seq_q=3 klen=40,3,17 causal=bottom-right window=9,* alibi=yes {PAGED}",),
    "decode": (f"fv1 seq_q=1 klen=40,0,17 softcap=30 {PAGED}".replace(" kept_pages=yes", ""),),
    "extend": (f"fv1 seq_q=3 klen=40,3,17 causal=bottom-right softcap=30 {PAGED}".replace(" kept_pages=yes", ""),),
    "prefill": (f"fv1 seq_q=12 seq_k=12 packed=0,5,9/0,5,9 causal=bottom-right backward=no padding=nan {SIZES}",),
    "planned decode": (f"fv1 seq_q=1 klen=40,0,17 softcap=30 {PAGED}".replace(" kept_pages=yes", ""),),
    "planned prefill": (f"fv1 seq_q=3 klen=40,0,17 causal=bottom-right window=9,* softcap=30 {PAGED}",),
    "ragged": (f"fv1 seq_q=12 seq_k=11 packed=0,5,5,9/0,4,6,9 causal=bottom-right backward=no padding=nan {SIZES}",),
    "single": (f"fv1 seq_q=5 seq_k=9 causal=bottom-right window=3,* softcap=30 backward=no {SIZES}",),
}


def failures(name, kernel, text):
    mine, case = KERNELS[name][1](kernel), parse_case(text)
    assert mine.supports.refusal(case) is None
    return judge_case(mine, case, checks=CHECKS).failures


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in CASES.items() for text in texts])
def test_a_right_kernel_of_the_signature_is_right(name, text):
    assert failures(name, KERNELS[name][0], text) == ()


def scaled(function, name, position=None):
    """With its scale one percent too large."""

    def wrong(*args, **given):
        if name in given:
            given[name] = given[name] * 1.01
        return function(*args, **given)

    wrong.__signature__ = __import__("inspect").signature(function)
    return wrong


WRONG = {
    "xformers": scaled(memory_efficient, "scale"),
    "unified": scaled(unified, "softmax_scale"),
    "prefix": scaled(prefix, "sm_scale"),
    "decode": scaled(decode, "sm_scale"),
    "extend": scaled(extend, "sm_scale"),
    "prefill": scaled(prefill, "sm_scale"),
    "single": lambda *args, **given: (single(*args, **given)[0], single(*args, **given)[1] / LOG2E),
}
for planned in (Decode, Prefill, Ragged):
    WRONG[next(name for name, (kernel, _) in KERNELS.items() if kernel is planned)] = type(
        "Natural", (planned,), {"run": lambda self, *args, **given: self.halved(*args, **given)}
    )
    Decode.halved = lambda self, *args, **given: tuple(
        x / factor for x, factor in zip(type(self).__mro__[1].run(self, *args, **given), (1, LOG2E), strict=True)
    )


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_defect_is_found(name):
    assert {v.check for v in failures(name, WRONG[name], CASES[name][0])} == {"accuracy"}


def test_what_the_signature_lacks_is_not_declared():
    def plain(q, k, v, out, cu_seqlens_q, seqused_k, softmax_scale, block_table): ...

    mine = adapters.vllm_unified_attention(plain)

    assert (mine.supports.masks, mine.supports.logits) == (("causal", "key_lengths"), ())
    assert not accepts(plain, "softcap")
    assert accepts(lambda **given: None, "softcap")


@pytest.mark.parametrize("name", ["prefix", "extend"])
def test_a_sequence_with_fewer_keys_than_new_tokens_is_not_given(name):
    kernel, wire = KERNELS[name]
    text = CASES[name][0].replace("klen=40,3,17", "klen=40,2,17")

    assert wire(kernel).supports.refusal(parse_case(text)) == "a sequence of 2 keys, and 3 new ones"
