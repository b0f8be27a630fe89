"""k and v in pages, in the layouts of the packages that serve models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flashverify.case.memory.handed import copied
from flashverify.case.wiring.page_numbers import key_counts, page_list, slots, slots_list
from flashverify.case.wiring.rows import cumulative, flat
from flashverify.errors import UsageError

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Pages, Problem

__all__ = ["PAGED_LAYOUTS", "FlashAttentionPages", "FlashInferPages", "SglangPages", "VllmPages", "as_paged"]

PAGED_LAYOUTS = ("flash-attn", "vllm", "vllm-x", "flashinfer-nhd", "flashinfer-hnd", "sglang")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlashAttentionPages:
    """As `flash_attn_with_kvcache` takes them.

    Args:
        q: `[B, Sq, Hq, D]`.
        k_cache: `[P, page_size, Hkv, D]`.
        v_cache: `[P, page_size, Hkv, Dv]`.
        block_table: `[B, n]` int32.
        cache_seqlens: `[B]` int32, keys of each sequence.
    """

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_table: torch.Tensor
    cache_seqlens: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmPages:
    """As the attention backends of vLLM take them.

    Args:
        q: `[T, Hq, D]`, the rows of all sequences one after the other.
        key_cache: `[P, page_size, Hkv, D]`; under `vllm-x`, the layout of the first paged attention kernels,
            `[P, Hkv, D / x, page_size, x]` with x = 16 bytes.
        value_cache: `[P, page_size, Hkv, Dv]`; under `vllm-x` `[P, Hkv, Dv, page_size]`.
        block_table: `[B, n]` int32.
        seq_lens: `[B]` int32, keys of each sequence.
        query_start_loc: `[B + 1]` int32, where the rows of each sequence begin.
        max_query_len: rows of the longest sequence or more.
        max_seq_len: keys of the longest sequence or more.
    """

    q: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    block_table: torch.Tensor
    seq_lens: torch.Tensor
    query_start_loc: torch.Tensor
    max_query_len: int
    max_seq_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlashInferPages:
    """As the wrappers of FlashInfer take them.

    Args:
        q: `[T, Hq, D]`, the rows of all sequences one after the other.
        k_cache: NHD `[P, page_size, Hkv, D]`; HND `[P, Hkv, page_size, D]`.
        v_cache: likewise, with Dv channels.
        qo_indptr: `[B + 1]` int32, where the rows of each sequence begin.
        indptr: `[B + 1]` int32, where the pages of each sequence begin in `indices`.
        indices: `[B n]` int32, page numbers; behind the last sequence lies garbage.
        last_page_len: `[B]` int32, keys of the last page; 0 of a sequence without keys.
        page_size: keys of a page.
    """

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    qo_indptr: torch.Tensor
    indptr: torch.Tensor
    indices: torch.Tensor
    last_page_len: torch.Tensor
    page_size: int

    @property
    def kv_cache(self) -> torch.Tensor:
        """Both caches in one tensor, NHD `[P, 2, page_size, Hkv, D]` or HND `[P, 2, Hkv, page_size, D]`: a guarded copy.

        Raises:
            UsageError: D and Dv differ; `Supports(equal_dims=True)` draws no such case.
        """
        import torch

        dim, dim_v = self.k_cache.shape[3], self.v_cache.shape[3]
        if dim != dim_v:
            raise UsageError(f"dim_qk={dim}, dim_v={dim_v}: kv_cache holds both; declare Supports(equal_dims=True)")
        return copied("kv_cache", torch.stack((self.k_cache, self.v_cache), 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangPages:
    """As the attention backends of SGLang take them: a pool of tokens, and the place of each.

    Args:
        q: `[T, Hq, D]`, the rows of all sequences one after the other.
        k_buffer: `[P page_size, Hkv, D]`.
        v_buffer: `[P page_size, Hkv, Dv]`.
        req_to_token: `[B + 1, n page_size]` int32, the place of each key; rows in another order than the sequences.
        req_pool_indices: `[B]` int32, the row of each sequence in `req_to_token`.
        seq_lens: `[B]` int32, keys of each sequence.
        qo_indptr: `[B + 1]` int32, where the rows of each sequence begin.
        kv_indptr: `[B + 1]` int32, where the keys of each sequence begin in `kv_indices`.
        kv_indices: `[B n page_size]` int32, places of keys; behind the last sequence lies garbage.
    """

    q: torch.Tensor
    k_buffer: torch.Tensor
    v_buffer: torch.Tensor
    req_to_token: torch.Tensor
    req_pool_indices: torch.Tensor
    seq_lens: torch.Tensor
    qo_indptr: torch.Tensor
    kv_indptr: torch.Tensor
    kv_indices: torch.Tensor


def as_paged(problem: Problem, layout: str) -> FlashAttentionPages | VllmPages | FlashInferPages | SglangPages:
    """Views of the pools where the layout allows them, else guarded copies.

    Args:
        problem: with pages.
        layout: one of `PAGED_LAYOUTS`.

    Raises:
        UsageError: the layout is unknown, the case has no pages, or its dims do not fit the layout.
    """
    if layout not in PAGED_LAYOUTS:
        raise UsageError(f"layout={layout!r} is not accepted: one of {', '.join(PAGED_LAYOUTS)}")
    pages = problem.pages
    if pages is None:
        raise UsageError(
            "page_size=None is not accepted by paged(): "
            "declare Supports(page_sizes=..., always_paged=True), and every case has pages"
        )
    if problem.case.quantised is not None:  # the bytes as the format's own dtype
        codes = problem.quantised().pages
        assert codes is not None
        pages = replace(pages, k=codes.k, v=codes.v)
    counts = key_counts(problem)
    if layout == "flash-attn":
        return FlashAttentionPages(
            q=problem.q.transpose(1, 2),
            k_cache=pages.k,
            v_cache=pages.v,
            block_table=pages.table,
            cache_seqlens=counts,
        )
    if layout.startswith("vllm"):
        return _vllm(problem, pages, counts, split=layout == "vllm-x")
    rows = flat(problem, problem.q, "row", "q")
    starts = cumulative(problem, "row")
    if layout == "sglang":
        return _sglang(pages, counts, rows, starts)
    indptr, indices, last = page_list(pages, counts)
    k, v = (pages.k, pages.v) if layout == "flashinfer-nhd" else (pages.k.transpose(1, 2), pages.v.transpose(1, 2))
    return FlashInferPages(
        q=rows,
        k_cache=k,
        v_cache=v,
        qo_indptr=starts,
        indptr=indptr,
        indices=indices,
        last_page_len=last,
        page_size=pages.k.shape[1],
    )


def _vllm(problem: Problem, pages: Pages, counts: torch.Tensor, *, split: bool) -> VllmPages:
    k, v = pages.k, pages.v
    if split:
        x, dim = 16 // k.element_size(), k.shape[3]
        if dim % x:
            raise UsageError(f"dim_qk={dim}: vllm-x takes multiples of {x}; declare Supports(dim_multiple={x})")
        k = copied("key_cache", k.reshape(*k.shape[:3], dim // x, x).permute(0, 2, 3, 1, 4))
        v = copied("value_cache", v.permute(0, 2, 3, 1))
    return VllmPages(
        q=flat(problem, problem.q, "row", "q"),
        key_cache=k,
        value_cache=v,
        block_table=pages.table,
        seq_lens=counts,
        query_start_loc=cumulative(problem, "row"),
        max_query_len=problem.case.seq_q,
        max_seq_len=problem.case.seq_k,
    )


def _sglang(pages: Pages, counts: torch.Tensor, rows: torch.Tensor, starts: torch.Tensor) -> SglangPages:
    import torch

    table = slots(pages)
    indptr, indices = slots_list(table, counts)
    pool = _pool(pages.k, "k_buffer")
    nowhere = table.new_full((1, table.shape[1]), pool.shape[0])  # of a request that is not asked for
    rows_of = torch.arange(len(counts), 0, -1, dtype=torch.int32, device=counts.device)
    return SglangPages(
        q=rows,
        k_buffer=pool,
        v_buffer=_pool(pages.v, "v_buffer"),
        req_to_token=copied("req_to_token", torch.cat((nowhere, table.flip(0)))),
        req_pool_indices=copied("req_pool_indices", rows_of),
        seq_lens=counts,
        qo_indptr=starts,
        kv_indptr=indptr,
        kv_indices=indices,
    )


def _pool(pages: torch.Tensor, name: str) -> torch.Tensor:
    """`[P, page_size, Hkv, D]` as `[P page_size, Hkv, D]`."""
    shape = (pages.shape[0] * pages.shape[1], *pages.shape[2:])
    try:
        return pages.view(shape)
    except RuntimeError:  # heads before keys
        return copied(name, pages.reshape(shape))
