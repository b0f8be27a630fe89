"""The adapters of docs/wiring.md run as they stand, on packages of those names that compute in float64."""

import re
import sys
import types
from pathlib import Path

import pytest
import torch

from flashverify import judge_case, parse_case

TEXT = (Path(__file__).resolve().parents[2] / "docs/wiring.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT.partition("## Adapters to copy")[2], re.DOTALL)
CASES = {
    "dense": (
        "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=5 seq_k=9 causal=bottom-right",
        "fv1 batch=2 seq_q=9 seq_k=5 dtype=bf16 gap=8 causal=bottom-right",
    ),
    "packed": (
        "fv1 heads_q=4 heads_kv=2 seq_q=9 seq_k=12 causal=bottom-right packed=0,3,3,7/0,4,5,9 padding=nan",
        "fv1 batch=3 heads_q=2 heads_kv=2 seq_q=4 seq_k=9 klen=9,0,3 padding=nan",
        "fv1 batch=2 seq_q=4 seq_k=9 layout=bshd",
    ),
    "decode": (
        "fv1 batch=3 heads_q=4 heads_kv=2 seq_k=40 page_size=16 klen=40,0,3 padding=nan backward=no",
        "fv1 batch=2 seq_k=33 dtype=fp32 page_size=32 layout=bshd backward=no",
    ),
    "latent": (
        "fv1 batch=2 heads_q=3 seq_q=2 seq_k=70 dim_qk=40 dim_v=32 page_size=64 klen=70,9 padding=nan kv=shared backward=no",
    ),
    "chosen": (
        "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=3 seq_k=150 causal=bottom-right selected=3,1,64,160,1,1,0,1",
        "fv1 heads_q=2 seq_q=2 seq_k=70 selected=2,1,64,128,1,0,0,1",
    ),
    "plan_and_run": (
        "fv1 batch=3 heads_q=4 heads_kv=2 seq_k=40 page_size=16 klen=40,0,3 padding=nan backward=no",
        "fv1 batch=2 seq_k=33 page_size=16 layout=bshd backward=no",
    ),
}


def attention(q, k, v, scale, causal=False):
    """O `[n, H, Dv]` and the natural LSE `[H, n]` of `[n, H, D]`, `[m, Hkv, D]`, `[m, Hkv, Dv]`."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.double().transpose(0, 1) for x in (q, k, v))
    s = q @ k.repeat_interleave(group, 0).mT * scale
    rows, keys = s.shape[1:]
    if causal:
        see = torch.ones(rows, keys, dtype=torch.bool, device=s.device).tril(keys - rows)
        s = s.masked_fill(~see, -torch.inf)
    lse = torch.logsumexp(s, -1)
    weights = torch.exp(s - lse.masked_fill(lse == -torch.inf, 0.0).unsqueeze(-1))
    return (weights @ v.repeat_interleave(group, 0)).transpose(0, 1), lse.float()


def varlen(q, k, v, cu_q, cu_k, max_q, max_k, *, softmax_scale, causal, return_attn_probs):
    o, lse = q.double().new_zeros(q.shape[:2] + v.shape[2:]), q.float().new_zeros(q.shape[1], q.shape[0])
    for s in range(len(cu_q) - 1):
        rows, keys = slice(cu_q[s], cu_q[s + 1]), slice(cu_k[s], cu_k[s + 1])
        assert rows.stop - rows.start <= max_q
        assert keys.stop - keys.start <= max_k
        o[rows], lse[:, rows] = attention(q[rows], k[keys], v[keys], softmax_scale, causal)
    return o.to(q.dtype), lse, None


def dense(q, k, v, *, softmax_scale, causal, return_attn_probs):
    found = [attention(*x, softmax_scale, causal) for x in zip(q, k, v, strict=True)]
    return torch.stack([o for o, _ in found]).to(q.dtype), torch.stack([lse for _, lse in found]), None


def paged(q, key_cache, value_cache, block_table, seq_lens, scale):
    o = q.double().new_zeros(*q.shape[:2], value_cache.shape[3])
    for b, length in enumerate(seq_lens.tolist()):
        pages = block_table[b, : -(-length // key_cache.shape[1])].long()
        k, v = (cache[pages].flatten(0, 1)[:length] for cache in (key_cache, value_cache))
        o[b : b + 1] = attention(q[b : b + 1], k, v, scale)[0]
    return o.to(q.dtype)


def latent(q, kv_cache, block_table, cache_seqlens, *, head_dim_v, scale):
    o, lse = q.double().new_zeros(*q.shape[:3], head_dim_v), q.float().new_zeros(*q.transpose(1, 2).shape[:3])
    for b, length in enumerate(cache_seqlens.tolist()):
        kv = kv_cache[block_table[b, : -(-length // kv_cache.shape[1])].long()].flatten(0, 1)[:length]
        o[b], lse[b] = attention(q[b], kv, kv[..., :head_dim_v], scale)
    return o.to(q.dtype), lse


def chosen(q, k, v, lists, *, block_size, causal, scale):
    rows, keys, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    blocks = torch.arange(keys) // block_size
    see = (lists.unsqueeze(-1) == blocks).any(3).repeat_interleave(group, 1)
    if causal:
        see = see & torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows)
    s = (q.double() @ k.double().repeat_interleave(group, 1).mT * scale).masked_fill(~see, -torch.inf)
    some = see.any(-1, keepdim=True)
    weights = s.masked_fill(~some, 0.0).softmax(-1) * some
    o = (weights @ v.double().repeat_interleave(group, 1)).to(q.dtype)
    return o, s.masked_fill(~some, 0.0).logsumexp(-1).masked_fill(~some.squeeze(-1), -torch.inf).float()


class Wrapper:
    def __init__(self, workspace):
        assert workspace.dtype == torch.uint8

    def plan(self, indptr, indices, last, heads, kv_heads, dim, size, *, q_data_type, sm_scale):
        self.lists, self.size, self.scale = (indptr.tolist(), indices.long(), last.tolist()), size, sm_scale

    def run(self, q, caches, return_lse):
        (indptr, indices, last), found = self.lists, []
        for b, rest in enumerate(last):
            pages = indices[indptr[b] : indptr[b + 1]]
            length = max(len(pages) - 1, 0) * self.size + rest
            k, v = (cache[pages].flatten(0, 1)[:length] for cache in caches)
            found.append(attention(q[b : b + 1], k, v, self.scale))
        lse = torch.cat([lse.T for _, lse in found]) * 1.4426950408889634
        return torch.cat([o for o, _ in found]).to(q.dtype), lse


PACKAGES = {
    "flash_attn": {"flash_attn_func": dense, "flash_attn_varlen_func": varlen},
    "my_package": {"paged_attention": paged, "mla_decode": latent, "sparse_attention": chosen},
    "flashinfer": {"BatchDecodeWithPagedKVCacheWrapper": Wrapper},
}


@pytest.fixture
def adapters(monkeypatch):
    for name, functions in PACKAGES.items():
        module = types.ModuleType(name)
        module.__dict__.update(functions)
        monkeypatch.setitem(sys.modules, name, module)
    found = {}
    for block in BLOCKS:
        exec(block, found)
    return found


@pytest.mark.parametrize("name", CASES)
def test_an_adapter_of_the_page_is_right(adapters, name):
    # These packages keep P in float64, so their backward does not start from the rounded O.
    for text in CASES[name]:
        case = parse_case(text)
        assert adapters[name].supports.refusal(case) is None
        assert [v for v in judge_case(adapters[name], case).failures if v.mode != "conditional"] == []


def test_every_adapter_of_the_page_is_run():
    assert len(BLOCKS) == len(CASES)
