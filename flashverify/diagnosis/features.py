"""Features of a case that a defect may depend on. Importing this module loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.masks.mask import PARTS
from flashverify.case.modifiers.logits import MODIFIERS

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.numerics import Form

__all__ = ["ABSENT", "CONSEQUENCES", "OF_OPTIONS", "OF_VALUES", "Value", "case_features", "lengths"]

Value = int | float | str
ABSENT = "no"
OF_VALUES = ("max_product", "max_logit", "least_row_max")
"""Features that follow from the values of the tensors: the largest |scaled product of q and k|, the largest |logit| and the smallest row
maximum of the logits among visible pairs."""

CONSEQUENCES = ("group_power", "lengths_alike", "room_filled")
"""Features that often follow from a part of the case, such as packed sequences: the part is said where both fit."""

_WORD = 8
"""Elements that a wide load takes at once."""

OF_OPTIONS = (
    *CONSEQUENCES,
    *("scale_sign", "least_rows", "least_keys", "cap", "p", "reach", "both_directions", "last_pages", "longest_prefix"),
    *("blocks.rows", "blocks.keys", "blocks.each"),
    *("selection.rows", "selection.keys", "selection.each", "selection.entries"),
)
"""Features that say the values of options, and how the lengths of sequences lie to each other."""


def lengths(case: Case) -> list[tuple[int, int]]:
    """Declared rows and keys of each sequence."""
    if case.mask.packed is not None:
        return list(case.mask.packed.lengths())
    rows = case.mask.query_lengths or (case.seq_q,) * case.batch
    keys = case.mask.key_lengths or (case.seq_k,) * case.batch
    return list(zip(rows, keys, strict=True))


def case_features(case: Case, form: Form | None = None) -> dict[str, Value]:
    """Every feature by name: numbers, or words, `no` for what the case has not.

    Args:
        case: the problem.
        form: of the subject on it, which says the number of splits and the tile of keys.
    """
    sizes = lengths(case)
    found: dict[str, Value] = {
        "seq_q": max((rows for rows, _ in sizes), default=0),
        "seq_k": max((keys for _, keys in sizes), default=0),
        "room_q": case.seq_q,
        "room_k": case.seq_k,
        "sequences": len(sizes),
        "dim_qk": case.dim_qk,
        "dim_v": case.dim_v,
        "heads_q": case.heads_q,
        "heads_kv": case.heads_kv,
        "group": case.heads_q // case.heads_kv,
        "dtype": case.dtype,
        "precision": case.precision,
    }
    for part in PARTS:
        value = getattr(case.mask, part.name)
        found[part.name] = ABSENT if value is None else "yes"
    found["causal"] = case.mask.causal or ABSENT
    for name, bound in zip(("window_left", "window_right"), case.mask.window or (None, None), strict=True):
        found[f"{name}_given"] = ABSENT if bound is None else "yes"
        if bound is not None:
            found[name] = bound
    for modifier in MODIFIERS:
        value = modifier.of(case)
        found[modifier.name] = ABSENT if not value else value if isinstance(value, str) else "yes"
    found |= {
        "given_scale": ABSENT if case.scale is None else "yes",
        "layout": case.storage.layout,
        "gap": case.storage.gap,
        "offset": case.storage.offset,
        "padding": case.storage.padding,
        "expand": "yes" if case.storage.expand else ABSENT,
        "strided": "yes" if case.storage.strided else ABSENT,
        "transposed": "yes" if case.storage.transposed else ABSENT,
        "aligned": ABSENT if case.storage.gap % _WORD or case.storage.offset % _WORD else "yes",
        "paged": ABSENT if case.storage.page_size is None else "yes",
        "do": case.grad.do,
        "dlse": "yes" if case.grad.dlse else ABSENT,
        "backward": "yes" if case.grad.backward else ABSENT,
        "edits": "yes" if case.values.edits else ABSENT,
    }
    if case.storage.page_size is not None:
        found["page_size"] = case.storage.page_size
    found |= {f"launch.{name}": value for name, value in case.launch}
    found |= _of_values(case, sizes)
    if form is not None:
        found["splits"] = form.n_splits
        if form.block_n is not None:
            found["tile_keys"] = form.block_n
    return found


def _of_values(case: Case, sizes: list[tuple[int, int]]) -> dict[str, Value]:
    """What the values of options are, and how the lengths of sequences lie to each other."""
    scale, group = case.softmax_scale, case.heads_q // case.heads_kv
    found: dict[str, Value] = {
        "scale_sign": "positive" if scale > 0 else "zero" if scale == 0 else "negative",
        "group_power": "yes" if group & (group - 1) == 0 else ABSENT,
        "least_rows": min((rows for rows, _ in sizes), default=0),
        "least_keys": min((keys for _, keys in sizes), default=0),
        "lengths_alike": "yes" if len(set(sizes)) < 2 else ABSENT,
    }
    if case.mask.packed is None:
        found["room_filled"] = "yes" if set(sizes) <= {(case.seq_q, case.seq_k)} else ABSENT
    if case.logits.softcap:
        found["cap"] = float(case.logits.softcap)
    if case.dropout:
        found["p"] = float(case.dropout)
    if case.logits.relative_bias:
        found["reach"], found["both_directions"] = (
            case.logits.relative_bias[1],
            "yes" if case.logits.relative_bias[2] else ABSENT,
        )
    if case.storage.page_size is not None:
        found["last_pages"] = "full" if all(keys % case.storage.page_size == 0 for _, keys in sizes) else "partial"
    for name in ("blocks", "selection"):
        part = getattr(case.mask, name)
        if part is not None:
            found |= {
                f"{name}.rows": part.rows,
                f"{name}.keys": part.keys,
                f"{name}.each": "yes" if part.each else ABSENT,
            }
    if case.mask.selection is not None:
        found["selection.entries"] = case.mask.selection.entries
    if case.mask.prefix_lengths:
        found["longest_prefix"] = max(case.mask.prefix_lengths)
    return found
