"""What a subject accepts: the part of the case space that is drawn for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.case.sections import HUGE
from flashverify.case.tensors import EDITABLE
from flashverify.formats import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.case import Case

__all__ = ["Supports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Supports:
    """The cases that a subject accepts. Strategies draw inside it; what lies outside is reported as unsupported.

    Args:
        dtypes: of q, k, v.
        precisions: of fp32 products.
        masks: parts of the mask that the subject has, by the names of the fields of `Mask`.
        combine_masks: whether several parts may be present at once.
        causal: alignments of the causal part.
        rectangular_causal: whether causal may come with seq_q != seq_k, of packed sequences with their own lengths.
        logits: modifications of the logits, names of the fields of `Logits`.
        wild_slopes: whether the slopes of ALiBi may be negative and large.
        huge_modifiers: whether finite sinks, slopes and positive biases may be of any size. Slopes then act as 2^96 in base 2 from there on.
        dropout: whether weights may be dropped.
        block_multiple: rows and keys of a block of a block-sparse pattern are multiples of it.
        page_sizes: keys per page that a paged k and v may have; empty where they must be contiguous.
        max_seq_q: most query rows of a sequence, as of a decode kernel.
        gqa: whether heads_q may be a multiple of heads_kv.
        dim_multiple: head dims are multiples of it.
        dim_max: largest head dim.
        equal_dims: whether dim_v must equal dim_qk.
        empty: whether batch, seq_q and seq_k may be 0.
        scales: signs of the scale that are right: subset of ("positive", "zero", "negative").
        layouts: of `Storage`.
        gaps: whether rows may be padded (strides larger than the row).
        unaligned: whether pointers and strides may be no multiple of 16 bytes.
        expand: whether k and v may have stride 0.
        strided: whether slopes, sink and dlse may have any strides.
        non_finite: whether NaN and Inf inside the declared lengths are drawn.
        backward: whether it has gradients.
        dlse: whether a gradient may arrive through LSE.
        launch: names of launch parameters that a case may set, with the values to draw from.
        compiles: whether head dims, dtype, mask, modifications, alignment, page size and launch parameters make a new compilation
            each; on a GPU such a subject is drawn from a finite list of them.
        also: an additional condition: returns the reason why a case is not supported, or None.
    """

    dtypes: tuple[str, ...] = DTYPES
    precisions: tuple[str, ...] = ("ieee",)
    masks: tuple[str, ...] = ()
    combine_masks: bool = True
    causal: tuple[str, ...] = ("top-left", "bottom-right")
    rectangular_causal: bool = True
    logits: tuple[str, ...] = ()
    wild_slopes: bool = True
    huge_modifiers: bool = False
    dropout: bool = False
    block_multiple: int = 16
    page_sizes: tuple[int, ...] = ()
    max_seq_q: int | None = None
    gqa: bool = True
    dim_multiple: int = 8
    dim_max: int = 256
    equal_dims: bool = False
    empty: bool = False
    scales: tuple[str, ...] = ("positive",)
    layouts: tuple[str, ...] = ("bhsd", "bshd")
    gaps: bool = True
    unaligned: bool = True
    expand: bool = True
    strided: bool = False
    non_finite: bool = True
    backward: bool = True
    dlse: bool = False
    launch: tuple[tuple[str, tuple[int, ...]], ...] = ()
    compiles: bool = True
    also: Callable[[Case], str | None] | None = None

    def refusal(self, case: Case) -> str | None:
        """Why `case` is not supported, naming the axis and its value; None where it is."""
        for refused, reason in self._rules(case):
            if refused:
                return reason
        return self.also(case) if self.also is not None else None

    def _rules(self, case: Case) -> list[tuple[bool, str]]:
        parts, storage = case.mask.parts(), case.storage
        sign = "zero" if case.softmax_scale == 0 else "positive" if case.softmax_scale > 0 else "negative"
        blocks, logits = case.mask.blocks, case.logits.names()
        sequences = case.mask.packed.lengths() if case.mask.packed is not None else ((case.seq_q, case.seq_k),)
        rectangle = next((pair for pair in sequences if pair[0] != pair[1]), None)
        longest = max((rows for rows, _ in sequences), default=0)
        alignment = (storage.gap % 8, storage.offset % 8)
        names = {name for name, _ in case.launch}
        return [
            (case.dtype not in self.dtypes, f"dtype={case.dtype}, it has {self.dtypes}"),
            (case.precision not in self.precisions, f"precision={case.precision}, it has {self.precisions}"),
            (not parts <= set(self.masks), f"mask parts {sorted(parts)}, it has {self.masks}"),
            (len(parts) > 1 and not self.combine_masks, f"mask parts {sorted(parts)} combined"),
            (case.mask.causal is not None and case.mask.causal not in self.causal, f"causal={case.mask.causal}"),
            (
                case.mask.causal is not None and rectangle is not None and not self.rectangular_causal,
                "causal with seq_q={}, seq_k={}".format(*(rectangle or (0, 0))),
            ),
            (
                blocks is not None and bool(blocks.rows % self.block_multiple or blocks.keys % self.block_multiple),
                f"blocks={blocks and (blocks.rows, blocks.keys)}, it has multiples of {self.block_multiple}",
            ),
            (
                self.max_seq_q is not None and longest > self.max_seq_q,
                f"seq_q={longest}, it has at most {self.max_seq_q}",
            ),
            (case.heads_q != case.heads_kv and not self.gqa, f"heads_q={case.heads_q}, heads_kv={case.heads_kv}"),
            (
                any(dim % self.dim_multiple or dim > self.dim_max for dim in (case.dim_qk, case.dim_v)),
                f"dim_qk={case.dim_qk}, dim_v={case.dim_v}, it has multiples of {self.dim_multiple} up to {self.dim_max}",
            ),
            (self.equal_dims and case.dim_qk != case.dim_v, f"dim_qk={case.dim_qk} with dim_v={case.dim_v}"),
            (
                not self.empty and (0 in (case.batch, case.seq_q, case.seq_k) or not sequences),
                "an empty batch or sequence",
            ),
            (sign not in self.scales, f"scale={case.softmax_scale}, it has {self.scales}"),
            (storage.layout not in self.layouts, f"layout={storage.layout}, it has {self.layouts}"),
            (storage.gap > 0 and not self.gaps, f"gap={storage.gap}"),
            (any(alignment) and not self.unaligned, f"gap={storage.gap}, offset={storage.offset} are not aligned"),
            (storage.expand and not self.expand, "expand=yes"),
            (storage.strided and not self.strided, "strided=yes"),
            (
                storage.page_size is not None and storage.page_size not in self.page_sizes,
                f"page_size={storage.page_size}, it has {self.page_sizes}",
            ),
            (not logits <= set(self.logits), f"logits {_named(case, logits)}, it has {self.logits}"),
            (case.logits.alibi == "wild" and not self.wild_slopes, "alibi=wild"),
            (not self.wild_slopes and any(edit.tensor == "slopes" for edit in case.values.edits), "edits of slopes"),
            (not self.huge_modifiers and _is_huge(case), f"a slope, sink or positive bias of {HUGE:.3g} or more"),
            (case.dropout > 0 and not self.dropout, f"dropout={case.dropout}"),
            (case.grad.backward and not self.backward, "backward=yes"),
            (case.grad.dlse and not self.dlse, "dlse=yes"),
            (not names <= {name for name, _ in self.launch}, f"launch parameters {sorted(names)}"),
        ]


def _is_huge(case: Case) -> bool:
    """Whether an edit makes a slope, a sink or a positive bias huge; a bias that is very negative stands for a mask."""
    return any(
        (edit.value if edit.tensor == "bias" else abs(edit.value)) >= HUGE
        for edit in case.values.edits
        if EDITABLE[edit.tensor].finite
    )


def _named(case: Case, names: frozenset[str]) -> str:
    return ", ".join(f"{name}={getattr(case.logits, name)}" for name in sorted(names))
