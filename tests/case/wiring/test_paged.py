"""Every layout of pages leads to the keys of the problem, read as its package reads them."""

import math

import pytest
import torch

from flashverify import UsageError, parse_case
from flashverify.case.memory.materialize import materialize

SHAPE = "fv1 batch=3 heads_q=4 heads_kv=2 seq_q=2 seq_k=11 dim_qk=16 dim_v=16 dtype=fp16 page_size=4 backward=no padding=nan"
CASES = (
    f"{SHAPE} klen=11,0,5",
    f"{SHAPE}",
    f"{SHAPE} klen=4,8,1 layout=bshd gap=8",
    f"{SHAPE} qlen=1,0,2 klen=4,8,1 expand=yes",
    f"{SHAPE} klen=3,3,3".replace("dim_v=16", "dim_v=32"),
)


def through_table(k, v, table, length):
    """Keys by pages `[P, page_size, H, D]` and a row of page numbers."""
    size = k.shape[1]
    places = [(int(table[j // size]), j % size) for j in range(length)]
    return [torch.stack([x[p, i] for p, i in places]) if places else x[0, :0] for x in (k, v)]


def flash_attn(x, b):
    return through_table(x.k_cache, x.v_cache, x.block_table[b], int(x.cache_seqlens[b]))


def vllm(x, b):
    return through_table(x.key_cache, x.value_cache, x.block_table[b], int(x.seq_lens[b]))


def vllm_x(x, b):
    k = x.key_cache  # [P, H, D / x, page_size, x]
    assert k.shape[4] * k.element_size() == 16
    assert k.is_contiguous()
    keys = k.permute(0, 3, 1, 2, 4).flatten(3)
    return through_table(keys, x.value_cache.permute(0, 3, 1, 2), x.block_table[b], int(x.seq_lens[b]))


def flashinfer(hnd):
    def read(x, b):
        first, last = int(x.indptr[b]), int(x.indptr[b + 1])
        length = 0 if last == first else (last - first - 1) * x.page_size + int(x.last_page_len[b])
        k, v = (c.transpose(1, 2) if hnd else c for c in (x.k_cache, x.v_cache))
        return through_table(k, v, x.indices[first:last], length)

    return read


def sglang(x, b):
    found = x.req_to_token[x.req_pool_indices[b], : x.seq_lens[b]]
    assert torch.equal(found, x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]])
    return x.k_buffer[found.long()], x.v_buffer[found.long()]


READERS = {
    "flash-attn": flash_attn,
    "vllm": vllm,
    "vllm-x": vllm_x,
    "flashinfer-nhd": flashinfer(False),
    "flashinfer-hnd": flashinfer(True),
    "sglang": sglang,
}


@pytest.mark.parametrize("layout", READERS)
@pytest.mark.parametrize("text", CASES)
def test_the_keys_are_those_of_the_problem(layout, text):
    p = materialize(parse_case(text))[0]
    x = p.paged(layout)
    for b, length in enumerate(p.case.keys_inside or (11,) * 3):
        k, v = READERS[layout](x, b)
        assert torch.equal(k, p.k[b, :, :length].transpose(0, 1))
        assert torch.equal(v, p.v[b, :, :length].transpose(0, 1))
    rows = p.q.transpose(1, 2) if layout == "flash-attn" else p.varlen().q
    assert torch.equal(x.q.nan_to_num(9.0), rows.nan_to_num(9.0))


@pytest.mark.parametrize("layout", ["flashinfer-nhd", "flashinfer-hnd"])
def test_both_caches_of_flashinfer_in_one_tensor(layout):
    x = materialize(parse_case(CASES[0]))[0].paged(layout)
    both = x.kv_cache

    assert both.is_contiguous()
    assert torch.equal(both[:, 0].nan_to_num(9.0), x.k_cache.nan_to_num(9.0))
    assert torch.equal(both[:, 1].nan_to_num(9.0), x.v_cache.nan_to_num(9.0))


@pytest.mark.parametrize("layout", READERS)
def test_pages_and_places_without_a_key_keep_their_poison(layout):
    x = materialize(parse_case(CASES[0]))[0].paged(layout)
    pools = {
        name: getattr(x, name)
        for name in ("k_cache", "v_cache", "key_cache", "value_cache", "k_buffer", "v_buffer")
        if hasattr(x, name)
    }

    for pool in pools.values():
        assert pool.isnan().any()
        assert not pool.isnan().all()


def test_entries_behind_the_last_page_stay_garbage():
    p = materialize(parse_case(CASES[0]))[0]
    pages, tokens = p.paged("flashinfer-nhd"), p.paged("sglang")
    count = p.pages.k.shape[0]

    assert (pages.indices[: pages.indptr[-1]] < count).all()
    assert (pages.indices[pages.indptr[-1] :] >= count).all()
    assert (tokens.req_to_token[tokens.req_pool_indices[1]] >= count * 4).all()  # a sequence without keys
    assert (tokens.req_to_token[0] == count * 4).all()
    assert sorted(tokens.req_pool_indices.tolist()) == [1, 2, 3]
    assert tokens.req_pool_indices.tolist() != [1, 2, 3]
    assert tokens.kv_indptr.tolist() == [0, 11, 11, 16]
    assert pages.last_page_len.tolist() == [3, 0, 1]


@pytest.mark.parametrize(
    ("text", "layout", "use", "message"),
    [
        (SHAPE, "vllm2", None, "layout='vllm2' is not accepted: one of flash-attn, vllm, vllm-x, "),
        (
            SHAPE.replace("page_size=4 ", ""),
            "vllm",
            None,
            r"page_size=None .* Supports\(page_sizes=\.\.\., always_paged=True\)",
        ),
        (SHAPE.replace("dim_qk=16", "dim_qk=12"), "vllm-x", None, r"dim_qk=12: .* Supports\(dim_multiple=8\)"),
        (CASES[4], "flashinfer-nhd", "kv_cache", r"dim_qk=16, dim_v=32: .* Supports\(equal_dims=True\)"),
    ],
)
def test_what_a_layout_cannot_hold_is_refused_with_what_to_declare(text, layout, use, message):
    p = materialize(parse_case(text))[0]
    with pytest.raises(UsageError, match=message):
        getattr(p.paged(layout), use or "q")


def test_the_largest_lengths_are_bounds():
    p = materialize(parse_case(CASES[0]))[0]
    x = p.paged("vllm")

    assert (x.max_query_len, x.max_seq_len) == (2, 11)
    assert math.ceil(x.max_seq_len / 4) <= x.block_table.shape[1]
