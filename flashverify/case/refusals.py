"""The rules by which a subject's declaration refuses a case, each with its reason."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flashverify.case.masks.together import banded_tree
from flashverify.case.masks.tree import has_entry_trees
from flashverify.case.quantised.drawing import quantised_refusals
from flashverify.case.sections import HUGE
from flashverify.case.selections import selection_rules
from flashverify.case.sizes import sizes_text
from flashverify.case.tensors import EDITABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.case.supports import Supports

    Rule = tuple[bool, str]

__all__ = ["rules", "rules_of_launches", "rules_of_problems"]


def rules(supports: Supports, case: Case) -> Iterator[Rule]:
    """Whether each rule refuses the case, and its reason, naming the axis and its value.

    Args:
        supports: what the subject declares; `also` is left aside.
        case: any.
    """
    yield from rules_of_problems(supports, case)
    yield from rules_of_launches(supports, case)


def rules_of_problems(supports: Supports, case: Case) -> Iterator[Rule]:
    """The rules that are the same whatever the launch parameters of the case."""
    yield from _of_masks(supports, case)
    yield from _of_shapes(supports, case)
    yield from _of_storage(supports, case)
    yield from _of_modifiers(supports, case)
    yield from quantised_refusals(supports, case)
    yield from _of_lengths(supports, case)


def _of_masks(supports: Supports, case: Case) -> Iterator[Rule]:
    mask, parts, blocks = case.mask, case.mask.parts(), case.mask.blocks
    rectangle = next((pair for pair in _sequences(case) if pair[0] != pair[1]), None)
    yield case.dtype not in supports.dtypes, f"dtype={case.dtype}, it has {supports.dtypes}"
    fp32 = case.dtype == "fp32"
    yield (
        fp32 and case.precision not in supports.precisions,
        f"precision={case.precision}, it has {supports.precisions}",
    )
    yield not parts <= set(supports.masks), f"mask parts {sorted(parts)}, it has {supports.masks}"
    yield not parts >= set(supports.required_masks), f"mask parts {sorted(parts)}, it needs {supports.required_masks}"
    yield len(parts) > 1 and not supports.combine_masks, f"mask parts {sorted(parts)} combined"
    yield mask.causal is not None and mask.causal not in supports.causal, f"causal={mask.causal}"
    yield (
        mask.causal is not None and rectangle is not None and not supports.rectangular_causal,
        "causal with seq_q={}, seq_k={}".format(*(rectangle or (0, 0))),
    )
    if mask.window is not None:
        bounded = {side for side, width in zip(("left", "right"), mask.window, strict=True) if width is not None}
        alignment = mask.window_alignment or "top-left"
        yield not bounded <= set(supports.window_sides), f"window={mask.window}, it has sides {supports.window_sides}"
        yield (
            mask.causal is None and alignment not in supports.window_alignments,
            f"a {alignment} window without causal, it has {supports.window_alignments}",
        )
    yield (
        banded_tree(parts) and not supports.banded_trees,
        f"mask parts {sorted(parts)}: a tree with causal or a window",
    )
    yield not supports.entry_trees and has_entry_trees(mask.tree), "a tree for each entry of the batch"
    yield (
        blocks is not None and bool(blocks.rows % supports.block_multiple or blocks.keys % supports.block_multiple),
        f"blocks={blocks and (blocks.rows, blocks.keys)}, it has multiples of {supports.block_multiple}",
    )
    yield from selection_rules(supports.selections, case)


def _of_shapes(supports: Supports, case: Case) -> Iterator[Rule]:
    sequences = _sequences(case)
    longest = max((rows for rows, _ in sequences), default=0)
    group = case.heads_q // case.heads_kv
    yield (
        supports.max_seq_q is not None and longest > supports.max_seq_q,
        f"seq_q={longest}, it has at most {supports.max_seq_q}",
    )
    yield case.heads_q != case.heads_kv and not supports.gqa, f"heads_q={case.heads_q}, heads_kv={case.heads_kv}"
    if supports.heads_q is not None:
        yield case.heads_q not in supports.heads_q, f"heads_q={case.heads_q}, it has {sizes_text(supports.heads_q)}"
    if supports.group_sizes is not None:
        yield (
            group not in supports.group_sizes,
            f"heads_q / heads_kv={group}, it has {sizes_text(supports.group_sizes)}",
        )
    if supports.heads_kv is not None:
        yield (
            case.heads_kv not in supports.heads_kv,
            f"heads_kv={case.heads_kv}, it has {sizes_text(supports.heads_kv)}",
        )
    yield from _of_dims(supports, case)
    yield (
        not supports.empty and (0 in (case.batch, case.seq_q, case.seq_k) or not sequences),
        "an empty batch or sequence",
    )
    yield not _has_scale(supports, case), f"scale={case.softmax_scale}, it has {supports.scales}"


def _of_dims(supports: Supports, case: Case) -> Iterator[Rule]:
    dims = (case.dim_qk, case.dim_v)
    if supports.dim_pairs is not None:
        yield dims not in supports.dim_pairs, f"dim_qk={dims[0]}, dim_v={dims[1]}, it has {list(supports.dim_pairs)}"
        return
    yield (
        any(dim % supports.dim_multiple or dim > supports.dim_max for dim in dims),
        f"dim_qk={case.dim_qk}, dim_v={case.dim_v}, it has multiples of {supports.dim_multiple} up to {supports.dim_max}",
    )
    yield supports.equal_dims and case.dim_qk != case.dim_v, f"dim_qk={case.dim_qk} with dim_v={case.dim_v}"


def _of_storage(supports: Supports, case: Case) -> Iterator[Rule]:
    storage = case.storage
    yield storage.layout not in supports.layouts, f"layout={storage.layout}, it has {supports.layouts}"
    yield storage.gap > 0 and not supports.gaps, f"gap={storage.gap}"
    yield (
        bool(storage.gap % 8 or storage.offset % 8) and not supports.unaligned,
        f"gap={storage.gap}, offset={storage.offset} are not aligned",
    )
    yield storage.kv not in supports.kv, f"kv={storage.kv}, it has {supports.kv}"
    yield storage.expand and not supports.expand, "expand=yes"
    yield storage.strided and not supports.strided, "strided=yes"
    yield storage.transposed and not supports.transposed, "transposed=yes"
    yield (
        storage.page_size is not None and storage.page_size not in supports.page_sizes,
        f"page_size={storage.page_size}, it has {supports.page_sizes}",
    )
    freed = storage.page_size is not None and not storage.kept_pages and not supports.freed_pages
    yield freed and (case.mask.window or (None,))[0] is not None, "kept_pages=no under a window to the left"
    yield (
        storage.page_size is None and supports.always_paged,
        f"k and v without pages, it has page sizes {supports.page_sizes} alone",
    )
    yield (
        supports.contiguous and case.grad.backward and case.grad.do in ("expanded", "transposed"),
        f"do={case.grad.do}, it has contiguous tensors alone",
    )


def _of_modifiers(supports: Supports, case: Case) -> Iterator[Rule]:
    logits = case.logits.names()
    named = ", ".join(f"{name}={getattr(case.logits, name)}" for name in sorted(logits))
    yield not logits <= set(supports.logits), f"logits {named}, it has {supports.logits}"
    yield case.logits.alibi == "wild" and not supports.wild_slopes, "alibi=wild"
    yield (
        not supports.wild_slopes and any(edit.tensor == "slopes" for edit in case.values.edits),
        "edits of slopes",
    )
    yield not supports.huge_modifiers and _is_huge(case), f"a slope, sink or positive bias of {HUGE:.3g} or more"
    yield case.dropout > 0 and not supports.dropout, f"dropout={case.dropout}"
    yield case.grad.backward and not supports.backward, "backward=yes"
    yield case.grad.dlse and not supports.dlse, "dlse=yes"


def _of_lengths(supports: Supports, case: Case) -> Iterator[Rule]:
    """Every sequence, and the buffers that packed ones lie in."""
    sequences = [*_sequences(case), (case.seq_q, case.seq_k)]
    if supports.square:
        found = next((pair for pair in sequences if pair[0] != pair[1]), (0, 0))
        yield found[0] != found[1], f"seq_q={found[0]} with seq_k={found[1]}, it has as many rows as keys"
    for name, axis, declared in (("seq_q", 0, supports.seq_q), ("seq_k", 1, supports.seq_k)):
        lengths = [pair[axis] for pair in sequences]
        odd = next((length for length in lengths if length % supports.seq_multiple), 0)
        yield odd > 0, f"{name}={odd}, it has multiples of {supports.seq_multiple}"
        if declared is not None:
            others = [length for length in lengths[:-1] if length not in declared and (length or not supports.empty)]
            yield bool(others), f"{name}={others and others[0]}, it has {sizes_text(declared)}"


def rules_of_launches(supports: Supports, case: Case) -> Iterator[Rule]:
    """The rules of the launch parameters of a case."""
    names, values = {name for name, _ in case.launch}, dict(supports.launch)
    if supports.launch_configs:
        yield bool(case.launch) and case.launch not in supports.launches(), f"launch={_launch_text(case)}"
        return
    yield not names <= set(values), f"launch parameters {sorted(names)}"
    for name, value in case.launch:
        if name in values:
            yield value not in values[name], f"launch {name}={value}, it has {values[name]}"


def _launch_text(case: Case) -> str:
    return ",".join(f"{name}:{value}" for name, value in case.launch)


def _sequences(case: Case) -> tuple[tuple[int, int], ...]:
    """(rows, keys) of every sequence; of a dense problem those of the buffers."""
    return ((case.seq_q, case.seq_k),) if case.mask.packed is None else case.mask.packed.lengths()


def _has_scale(supports: Supports, case: Case) -> bool:
    scale = case.softmax_scale
    sign = "zero" if scale == 0 else "positive" if scale > 0 else "negative"
    default = "default" in supports.scales and scale == 1.0 / math.sqrt(case.dim_qk)
    return default or sign in supports.scales or scale in supports.scales


def _is_huge(case: Case) -> bool:
    """Whether an edit makes a slope, a sink or a positive bias huge; a bias that is very negative stands for a mask."""
    return any(
        (edit.value if edit.tensor == "bias" else abs(edit.value)) >= HUGE
        for edit in case.values.edits
        if EDITABLE[edit.tensor].finite
    )
