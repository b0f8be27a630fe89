"""Whether a subject looked at a part of its problem."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

from flashverify.case.problem import Problem

if TYPE_CHECKING:
    from flashverify.probing.answers import Seen

__all__ = ["looked"]

_FIELDS: dict[str, tuple[str, ...]] = {
    "packed": ("cu_q", "cu_k"),
    "alibi": ("slopes",),
    "relative_bias": ("relative_bias", "distance_buckets"),
    "dropout": ("dropout_p", "dropout_seed", "dropout_offset"),
}
"""Fields of `Problem` that hold a part, where it has another name."""
_LOGITS = ("softcap", "alibi", "bias", "sink", "relative_bias")
_INSIDE = {
    **dict.fromkeys(_LOGITS, "case.logits"),
    "dropout": "case.dropout",
    "pages": "case.storage",
    "scale": "case.scale",
}
"""Fields of `Case` that say whether a problem has a part; of a part of the mask it is `case.mask`."""
_KNOWN = frozenset(
    {field.name for field in dataclasses.fields(Problem)}
    | {name for name, value in vars(Problem).items() if isinstance(value, property)}
)
_PLAIN = frozenset({"bshd", "contiguous", "gradients", "outputs"})


def looked(seen: Seen, part: str) -> Literal["yes", "no", "perhaps"]:
    """Whether the subject read a part of the mask, a modifier, `pages` or `scale`: `perhaps` where it read what holds several parts."""
    if set(_FIELDS.get(part, (part,))) & set(seen.read):
        return "yes"
    if _INSIDE.get(part, "case.mask") in seen.read or (part == "scale" and "case.softmax_scale" in seen.read):
        return "perhaps"
    opaque = {name for name in seen.read if not name.startswith("case.")} - _KNOWN - _PLAIN
    return "perhaps" if opaque else "no"
