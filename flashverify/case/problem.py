"""A case as tensors: what a subject is given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flashverify.case.shared_kv import shares, value_view
from flashverify.case.tensors import TENSORS
from flashverify.case.values.dropout_words import dropout_key
from flashverify.case.wiring.methods import Wiring

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case

__all__ = ["Pages", "Problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """k and v in pages of a pool, in no particular order; more pages than are used.

    Key j of sequence b lies in page `table[b, j // page_size]` at `j % page_size`. Pages that no sequence uses and keys beyond
    the declared lengths hold the padding poison; entries of the table beyond the last page of a sequence are garbage that must
    not be followed, and so are those before the window of every row unless `case.storage.kept_pages`.

    Args:
        k: `[P, page_size, Hkv, D]`, a view whose strides follow `case.storage`.
        v: `[P, page_size, Hkv, Dv]`.
        table: `[B, n]` int32, n = ceil(Sk / page_size), at least 1.
        k_scale: of a quantised case, whose k and v are codes (uint8): `[P, page_size / n, Hkv]` fp32, of each n keys of a page; None
            where a scale serves more than a page, as one of a head or of the tensor does. v_scale likewise.
        k_zero: int32 of that shape, or None; v_zero likewise.
    """

    k: torch.Tensor
    v: torch.Tensor
    table: torch.Tensor
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None
    k_zero: torch.Tensor | None = None
    v_zero: torch.Tensor | None = None

    def pools(self) -> dict[str, torch.Tensor]:
        """Every tensor but the table by name, `[P, keys or groups of a page, Hkv, ...]`."""
        names = ("k", "v", "k_scale", "v_scale", "k_zero", "v_zero")
        return {name: pool for name in names if (pool := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Wiring):
    """The tensors of a case. What a case does not have is None.

    Args:
        case: the case they come from.
        q: `[B, Hq, Sq, D]`, a view whose strides follow `case.storage`; last axis contiguous.
        k: `[B, Hkv, Sk, D]`; of a paged case too, where a subject reads `pages` instead.
        v: `[B, Hkv, Sk, Dv]`. Of a case with `kv=shared` it is the first Dv channels of k, here and in the pages, whatever is given.
        do: `[B, Hq, Sq, Dv]`, the incoming gradient of O; None without a backward.
        dlse: `[B, Hq, Sq]` fp32, the incoming gradient of the natural LSE.
        key_lengths: `[B]` int32.
        query_lengths: `[B]` int32.
        cu_q: `[n + 1]` int32, cumulative rows of packed sequences.
        cu_k: `[n + 1]` int32, cumulative keys of packed sequences.
        bitmap: `[B or 1, Hq or 1, Sq, Sk]` bool, contiguous, true where the row may see the key.
        blocks: `[B or 1, Hq or 1, ceil(Sq / rows), ceil(Sk / keys)]` bool, contiguous, true = live.
        prefix_lengths: `[n]` int32, one per sequence.
        selection: `[B or 1, Hkv or 1, ceil(Sq / rows), entries]` int32, contiguous: the blocks of `case.mask.selection.keys` keys that
            these rows see, -1 where an entry names none. A block that stands twice counts once.
        bias: `[B or 1, Hq or 1, Sq, Sk]` in the dtype of q, a view whose strides follow `case.storage`.
        slopes: `[Hq]` fp32, of ALiBi; every second element of its buffer where `case.storage` is strided, as sink and dlse.
        sink: `[Hq]` fp32, natural units.
        relative_bias: `[Hq, buckets]` fp32, natural units, strided as sink. Row i and key j add
            `relative_bias[h, distance_buckets[clamp(j - (i + shift), -reach, reach) + reach]]`, with the shift of ALiBi.
        distance_buckets: `[2 * reach + 1]` int32: the bucket of each clipped distance, that of `-reach` first.
        pages: k and v in pages.
        k_codes: `[B, Hkv, Sk, D]` uint8, k of a quantised case, whose own `k` holds the values that were quantised; two codes a byte of
            `int4`. `quantised()` gives codes in their own dtype.
        v_codes: likewise.
        k_scale: fp32 `[1, 1, 1]` or `[B, Hkv, n]`.
        v_scale: likewise.
        k_zero: int32 of that shape, or None.
        v_zero: likewise.
        q_codes: `[B, Hq, Sq, D]` uint8, of a case whose q is in codes.
        q_scale: of these, fp32 `[1, 1, 1]` or `[B, Hq, n]`.
    """

    case: Case
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    do: torch.Tensor | None
    dlse: torch.Tensor | None
    key_lengths: torch.Tensor | None
    query_lengths: torch.Tensor | None = None
    cu_q: torch.Tensor | None = None
    cu_k: torch.Tensor | None = None
    bitmap: torch.Tensor | None = None
    blocks: torch.Tensor | None = None
    prefix_lengths: torch.Tensor | None = None
    selection: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    slopes: torch.Tensor | None = None
    sink: torch.Tensor | None = None
    relative_bias: torch.Tensor | None = None
    distance_buckets: torch.Tensor | None = None
    pages: Pages | None = None
    k_codes: torch.Tensor | None = None
    v_codes: torch.Tensor | None = None
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None
    k_zero: torch.Tensor | None = None
    v_zero: torch.Tensor | None = None
    q_codes: torch.Tensor | None = None
    q_scale: torch.Tensor | None = None

    def __post_init__(self) -> None:
        if not shares(self.case):
            return
        object.__setattr__(self, "v", value_view(self.k, self.case.dim_v))
        if self.pages is not None:
            object.__setattr__(self, "pages", replace(self.pages, v=value_view(self.pages.k, self.case.dim_v)))

    @property
    def scale(self) -> float:
        """The scale of the logits, natural units."""
        return self.case.softmax_scale

    @property
    def causal(self) -> str | None:
        """None, `top-left` or `bottom-right`."""
        return self.case.mask.causal

    @property
    def window(self) -> tuple[int | None, int | None] | None:
        """(left, right), None where unbounded; or None."""
        return self.case.mask.window

    @property
    def window_alignment(self) -> str | None:
        """Of the window: that of causal where there is one, else `top-left` or `bottom-right`; None without a window."""
        mask = self.case.mask
        return None if mask.window is None else mask.causal or mask.window_alignment or "top-left"

    @property
    def tree(self) -> tuple[int, ...] | tuple[tuple[int, ...], ...] | None:
        """Parents of the query nodes, of each entry where `entry_trees` is declared and they differ; or None."""
        return self.case.mask.tree

    @property
    def softcap(self) -> float | None:
        """Of the logits, natural units; or None."""
        return self.case.logits.softcap

    @property
    def max_q(self) -> int:
        """Rows of the longest sequence; seq_q where none are packed."""
        return self.case.longest_q

    @property
    def max_k(self) -> int:
        """Keys of the longest sequence; seq_k where none are packed."""
        packed = self.case.mask.packed
        return self.case.seq_k if packed is None else max((keys for _, keys in packed.lengths()), default=0)

    @property
    def dropout_p(self) -> float:
        """Probability that a weight is dropped; 0 without dropout."""
        return self.case.dropout

    @property
    def dropout_seed(self) -> int:
        """64 bits, from the seed of the values: all of them vary, and 0 stays 0."""
        return dropout_key(self.case.values.seed)[0]

    @property
    def dropout_offset(self) -> int:
        """32 bits, from the seed of the values: all of them vary, and 0 stays 0."""
        return dropout_key(self.case.values.seed)[1]

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Every tensor of the problem."""
        pages = () if self.pages is None else (*self.pages.pools().values(), self.pages.table)
        given = (*(getattr(self, name) for name in TENSORS), *pages)
        return tuple(tensor for tensor in given if tensor is not None)
