"""What a subject accepts: the part of the case space that is drawn for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
        masks: parts of `Mask` that the subject has.
        combine_masks: whether several parts may be present at once.
        causal: alignments of the causal part.
        rectangular_causal: whether causal may come with seq_q != seq_k.
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
        non_finite: whether NaN and Inf inside the declared lengths are drawn.
        backward: whether it has gradients.
        dlse: whether a gradient may arrive through LSE.
        launch: names of launch parameters that a case may set, with the values to draw from.
        compiles: whether head dims, dtype, mask, alignment and launch parameters make a new compilation each; on a GPU such a
            subject is drawn from a finite list of them.
        also: an additional condition: returns the reason why a case is not supported, or None.
    """

    dtypes: tuple[str, ...] = ("fp16", "bf16", "fp32")
    precisions: tuple[str, ...] = ("ieee",)
    masks: tuple[str, ...] = ()
    combine_masks: bool = True
    causal: tuple[str, ...] = ("top-left", "bottom-right")
    rectangular_causal: bool = True
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
        mixed = case.logits.softcap or case.logits.alibi or case.logits.bias or case.logits.sink
        alignment = (storage.gap % 8, storage.offset % 8)
        names = {name for name, _ in case.launch}
        return [
            (case.dtype not in self.dtypes, f"dtype={case.dtype}, it has {self.dtypes}"),
            (case.precision not in self.precisions, f"precision={case.precision}, it has {self.precisions}"),
            (not parts <= set(self.masks), f"mask parts {sorted(parts)}, it has {self.masks}"),
            (len(parts) > 1 and not self.combine_masks, f"mask parts {sorted(parts)} combined"),
            (case.mask.causal is not None and case.mask.causal not in self.causal, f"causal={case.mask.causal}"),
            (
                case.mask.causal is not None and case.seq_q != case.seq_k and not self.rectangular_causal,
                f"causal with seq_q={case.seq_q}, seq_k={case.seq_k}",
            ),
            (case.heads_q != case.heads_kv and not self.gqa, f"heads_q={case.heads_q}, heads_kv={case.heads_kv}"),
            (
                any(dim % self.dim_multiple or dim > self.dim_max for dim in (case.dim_qk, case.dim_v)),
                f"dim_qk={case.dim_qk}, dim_v={case.dim_v}, it has multiples of {self.dim_multiple} up to {self.dim_max}",
            ),
            (self.equal_dims and case.dim_qk != case.dim_v, f"dim_qk={case.dim_qk} with dim_v={case.dim_v}"),
            (not self.empty and 0 in (case.batch, case.seq_q, case.seq_k), "an empty batch or sequence"),
            (sign not in self.scales, f"scale={case.softmax_scale}, it has {self.scales}"),
            (storage.layout not in self.layouts, f"layout={storage.layout}, it has {self.layouts}"),
            (storage.gap > 0 and not self.gaps, f"gap={storage.gap}"),
            (any(alignment) and not self.unaligned, f"gap={storage.gap}, offset={storage.offset} are not aligned"),
            (storage.expand and not self.expand, "expand=yes"),
            (storage.page_size is not None, "page_size"),
            (bool(mixed), "logit modifications"),
            (case.dropout > 0, f"dropout={case.dropout}"),
            (case.grad.backward and not self.backward, "backward=yes"),
            (case.grad.dlse and not self.dlse, "dlse=yes"),
            (not names <= {name for name, _ in self.launch}, f"launch parameters {sorted(names)}"),
        ]
