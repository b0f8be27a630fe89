"""The methods of a problem that give a kernel its tensors as it wants them, and take its outputs as it returns them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast, overload

from flashverify.case.wiring.operands import as_batched, as_varlen
from flashverify.case.wiring.returned import rearranged

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem
    from flashverify.case.quantised.problem import QuantisedView
    from flashverify.case.wiring.operands import Batched, Varlen
    from flashverify.case.wiring.paged import FlashAttentionPages, FlashInferPages, SglangPages, VllmPages

__all__ = ["Wiring"]


class Wiring:
    """What `Problem` can do for an adapter.

    A tensor is a view of the problem's own memory where strides allow one. Otherwise it is a copy in guarded memory of its own, padding
    and its poison included; gradients flow back through it, and a kernel that stores into it is told so.
    """

    __slots__ = ()

    def bshd(self) -> Batched:
        """q, k, v and dO with rows before heads: views `[B, S, H, D]`, in every case.

        Their strides are those of the case. A kernel that wants contiguous ones declares `Supports(contiguous=True, layouts=("bshd",))`,
        or is given `p.contiguous("bshd").bshd()`.
        """
        return as_batched(cast("Problem", self))

    def varlen(self) -> Varlen:
        """q, k, v and dO as tokens `[T, H, D]`, with cumulative and largest lengths, as `flash_attn_varlen_func` takes them.

        Packed sequences are what they are: views, with room behind the last sequence in some cases. Of a dense problem each entry of the
        batch is a sequence of its declared lengths; its padding is moved behind the last sequence. Such a kernel leaves rows behind the
        last sequence alone, so declare `Contract(padding="undefined")`. Tensors per pair (`bias`, `bitmap`, `blocks`) and the tree stay
        as they are: a kernel that cannot take them does not declare them.
        """
        return as_varlen(cast("Problem", self))

    @overload
    def paged(self, layout: Literal["flash-attn"]) -> FlashAttentionPages: ...

    @overload
    def paged(self, layout: Literal["vllm", "vllm-x"]) -> VllmPages: ...

    @overload
    def paged(self, layout: Literal["flashinfer-nhd", "flashinfer-hnd"]) -> FlashInferPages: ...

    @overload
    def paged(self, layout: Literal["sglang"]) -> SglangPages: ...

    def paged(self, layout: str) -> FlashAttentionPages | VllmPages | FlashInferPages | SglangPages:
        """The pages of k and v with their table, and q, in the layout and under the names of a package.

        Needs `Supports(page_sizes=..., always_paged=True)`: a case without pages is refused. Pages have no gradients, so declare
        `backward=False` too. Entries of the table beyond the last page of a sequence are garbage, and pages hold poison where they
        hold no key.

        Args:
            layout: `flash-attn` (cache `[P, page_size, Hkv, D]`, table, lengths; q `[B, Sq, Hq, D]`), `vllm` (the same cache; q as tokens
                `[T, Hq, D]`), `vllm-x` (keys split into 16 bytes, of the first paged attention kernels), `flashinfer-nhd` and
                `flashinfer-hnd` (indptr, indices, last_page_len), or `sglang` (a pool of tokens, req_to_token, kv_indptr, kv_indices).

        Raises:
            UsageError: the layout is unknown, the case has no pages, or its dims do not fit the layout.
        """
        from flashverify.case.wiring.paged import as_paged

        return as_paged(cast("Problem", self), layout)

    def quantised(self, *, as_bytes: bool = False) -> QuantisedView:
        """The codes of k and v with their scales, and q, for a kernel of a quantised cache (docs/quantised.md).

        Needs `Supports(quantised=..., backward=False)`: its cases are quantised. A subject is judged against attention over the values
        that the codes stand for.

        Args:
            as_bytes: codes as uint8 in every format, for a kernel that decodes them by itself.

        Raises:
            UsageError: the case is not quantised.
        """
        from flashverify.case.quantised.problem import as_quantised

        return as_quantised(cast("Problem", self), as_bytes=as_bytes)

    def contiguous(self, layout: Literal["bhsd", "bshd"] = "bhsd") -> Problem:
        """The problem with every tensor contiguous, those of four axes in the given order of axes in memory.

        An adapter that copies as its users' wrapper does hides nothing that this wrapper does not hide. A kernel that is only ever given
        contiguous tensors declares `Supports(contiguous=True)` instead, and its cases are drawn so.

        Args:
            layout: `bhsd` or `bshd`. Shapes stay `[B, H, S, D]`.

        Raises:
            UsageError: the layout is unknown.
        """
        from flashverify.case.memory.contiguity import contiguous_in

        return contiguous_in(cast("Problem", self), layout)

    def dense_mask(self) -> torch.Tensor | None:
        """Every part of the mask in one tensor, bool `[B, 1 or Hq, Sq, Sk]`, true where the row sees the key.

        None where every row sees every key. Keys beyond the declared lengths may hold NaN, which a product with a weight of 0 lets through:
        a kernel that takes a mask alone does not declare `key_lengths`, or fills such values first.
        """
        from flashverify.case.wiring.dense import mask_of_pairs

        return mask_of_pairs(cast("Problem", self))

    def dense_bias(self) -> torch.Tensor | None:
        """Bias, ALiBi and relative bias added up in fp32, `[B or 1, 1 or Hq, Sq, Sk]`, natural units; None where the case has none.

        Gradients flow back to `bias` and `relative_bias`. Bounds take the terms as fp32: a kernel that wants the sum in 16 bits rounds it
        once more, and only a bias by itself (`p.bias`) is exact there.
        """
        from flashverify.case.wiring.dense import bias_of_pairs

        return bias_of_pairs(cast("Problem", self))

    def outputs(
        self, o: torch.Tensor, lse: torch.Tensor | None = None, layout: str = "bhsd", lse_layout: str = "bhs"
    ) -> Any:
        """What a kernel returned, as a subject returns it: `(o, lse)`, or o alone without an LSE.

        Rows that `varlen` moved are moved back. The base of the LSE is that of `Contract.lse_base`: nothing is converted.

        Args:
            o: in the order of axes of `layout`.
            lse: in the order of axes of `lse_layout`.
            layout: `bhsd`, `bshd`, `thd` or `htd`; t counts the tokens of `varlen` and of paged queries.
            lse_layout: `bhs`, `bsh`, `th` or `ht`.

        Raises:
            UsageError: a layout is unknown, or a tensor does not have it.
        """
        problem = cast("Problem", self)
        found = rearranged(problem, o, layout, "row", "o")
        return found if lse is None else (found, rearranged(problem, lse, lse_layout, "row", "lse", "lse_layout"))

    def gradients(
        self, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, layout: str = "bhsd"
    ) -> dict[str, torch.Tensor]:
        """What a hand-written backward returned, as `subject(backward=...)` takes it, by name.

        Args:
            dq: in the order of axes of `layout`.
            dk: likewise.
            dv: likewise.
            layout: `bhsd`, `bshd`, `thd` or `htd`.

        Raises:
            UsageError: the layout is unknown, or a tensor does not have it.
        """
        problem = cast("Problem", self)
        return {
            "dq": rearranged(problem, dq, layout, "row", "dq"),
            "dk": rearranged(problem, dk, layout, "key", "dk"),
            "dv": rearranged(problem, dv, layout, "key", "dv"),
        }
