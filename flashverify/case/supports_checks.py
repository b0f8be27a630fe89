"""Whether the fields of `Supports` are accepted, alone and together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flashverify.case.masks.mask import PARTS
from flashverify.case.masks.together import stand_together
from flashverify.case.modifiers.logits import LOGIT_MODIFIERS
from flashverify.case.quantised.codes import CODES
from flashverify.case.quantised.quantised import SCALES
from flashverify.case.sections import LAYOUTS, PRECISIONS
from flashverify.case.shared_kv import KV
from flashverify.case.sizes import declared_sizes
from flashverify.errors import UsageError
from flashverify.formats import DTYPES

if TYPE_CHECKING:
    from flashverify.case.supports import Launch, Supports

__all__ = ["checked", "group_choices"]

_ALIGNMENTS = ("top-left", "bottom-right")
_SCALES = ("positive", "zero", "negative", "default")
_NAMES: dict[str, tuple[str, ...]] = {
    "dtypes": DTYPES,
    "precisions": PRECISIONS,
    "masks": tuple(part.name for part in PARTS if part.role != "alignment"),
    "required_masks": tuple(part.name for part in PARTS if part.role != "alignment"),
    "causal": _ALIGNMENTS,
    "window_sides": ("left", "right"),
    "window_alignments": _ALIGNMENTS,
    "logits": tuple(modifier.name for modifier in LOGIT_MODIFIERS),
    "layouts": LAYOUTS,
    "kv": KV,
    "quantised": tuple(CODES),
    "quantised_scales": SCALES,
    "quantised_q": ("values", "codes"),
}
"""Fields that are a tuple of names, with the names."""


def checked(supports: Supports) -> dict[str, Any]:
    """The fields that are stored in another form than they were given in.

    Raises:
        UsageError: a field is not accepted, or no case fulfils all of them.
    """
    for name, accepted in _NAMES.items():
        given = getattr(supports, name)
        names = isinstance(given, Iterable) and not isinstance(given, str) and set(given) <= set(accepted)
        _require(names, supports, name, f"a tuple of {', '.join(accepted)}")
    _require(
        all(_is_scale(scale) for scale in supports.scales),
        supports,
        "scales",
        f"a tuple of {', '.join(_SCALES)} and finite numbers",
    )
    _require(_is_size(supports.seq_multiple), supports, "seq_multiple", "an integer >= 1")
    most = supports.max_seq_q
    _require(most is None or _is_size(most), supports, "max_seq_q", "None or an integer >= 1")
    found: dict[str, Any] = {
        name: declared_sizes(name, getattr(supports, name))
        for name in ("seq_q", "seq_k", "heads_q", "heads_kv", "group_sizes")
    }
    for name, value in found.items():
        object.__setattr__(supports, name, value)
    found["launch_configs"] = _configs(supports)
    found["dim_pairs"] = _dim_pairs(supports)
    if supports.quantised:
        _require("packed" not in supports.masks, supports, "masks", "no 'packed' where quantised is given")
        whole = all(any(size % n == 0 for n in supports.quantised_blocks) for size in supports.page_sizes)
        whole = whole or not supports.quantised_blocks or tuple(supports.quantised_scales) != ("block",)
        _require(whole, supports, "page_sizes", "multiples of a block, where each block of keys has a scale")
        _require(bool(supports.quantised_q), supports, "quantised_q", "at least one where quantised is given")
        wide = "values" in supports.quantised_q or any(CODES[n].per_byte == 1 for n in supports.quantised)
        _require(wide, supports, "quantised_q", "with 'values' where quantised=('int4',): q has no codes of 4 bits")
        _require(bool(supports.quantised_scales), supports, "quantised_scales", "at least one where quantised is given")
        _require(not supports.backward, supports, "backward", "False where quantised is given: codes have no gradients")
        found |= dict.fromkeys(("expand", "transposed", "far_strides"), False)
    if supports.contiguous:
        left_out = ("gaps", "expand", "strided", "transposed", "far_strides")
        found |= dict.fromkeys(left_out, False) | {"layouts": tuple(supports.layouts[:1])}
    _check_masks(supports)
    _check_lengths(supports)
    group_choices(supports)
    return found


def group_choices(supports: Supports) -> list[int]:
    """The group sizes that the subject may be given, ascending, up to 64 of them; empty where any will do.

    Raises:
        UsageError: no declared number of query heads is a multiple of a declared group size.
    """
    sizes = supports.group_sizes
    if supports.gqa and sizes is None:
        return []
    found = [size for size in (sizes or (1,))[:64] if supports.gqa or size == 1]
    _require(bool(found), supports, "group_sizes", "1 among them, because gqa is False")
    heads = supports.heads_q
    fits = heads is None or any(count % size == 0 for count in heads[:4096] for size in found)
    _require(fits, supports, "group_sizes", f"one of them divides one of heads_q={heads}")
    return found


def _dim_pairs(supports: Supports) -> tuple[tuple[int, int], ...] | None:
    if supports.dim_pairs is None:
        return None
    accepted = "None, or pairs (dim_qk, dim_v) of integers >= 1, with one at least"
    try:
        found = tuple((dim_qk, dim_v) for dim_qk, dim_v in supports.dim_pairs)
    except (TypeError, ValueError):
        found = ()
    fits = bool(found) and all(_is_size(dim) for pair in found for dim in pair)
    _require(fits, supports, "dim_pairs", accepted)
    within = "separate" in supports.kv or any(dim_v <= dim_qk for dim_qk, dim_v in found)
    _require(within, supports, "dim_pairs", "one with dim_v <= dim_qk, because kv is shared")
    return found


def _check_masks(supports: Supports) -> None:
    required = [part for part in PARTS if part.name in supports.required_masks]
    names = {part.name for part in required}
    _require(names <= set(supports.masks), supports, "required_masks", f"some of masks={supports.masks}")
    _require(
        supports.combine_masks or len(names) <= 1,
        supports,
        "required_masks",
        "one at most, because combine_masks is False",
    )
    for part in required:
        missing = set(part.needs) - set(supports.masks)
        _require(not missing, supports, "required_masks", f"{part.name} only with masks that hold {sorted(missing)}")
    _require(
        stand_together(supports, *names),
        supports,
        "required_masks",
        "parts that may stand together",
    )
    for name in ("window_sides", "window_alignments", "kv"):
        _require(bool(getattr(supports, name)), supports, name, "one at least")
    if supports.always_paged:
        _require(bool(supports.page_sizes), supports, "always_paged", "True only with page_sizes")
        _require("packed" not in supports.masks, supports, "always_paged", "False where masks hold packed")


def _check_lengths(supports: Supports) -> None:
    rows, keys = supports.rows(), supports.keys()
    conditions = f"max_seq_q={supports.max_seq_q}, seq_multiple={supports.seq_multiple}"
    _require(rows.first() is not None, supports, "seq_q", f"a length within {conditions}")
    _require(keys.first() is not None, supports, "seq_k", f"a length within seq_multiple={supports.seq_multiple}")
    same = (rows & keys).first() is not None
    _require(same or not supports.square, supports, "square", "True only with a length that seq_q and seq_k both have")
    if "causal" in supports.masks and not supports.rectangular_causal:
        accepted = "True where seq_q and seq_k have no length in common"
        _require(same, supports, "rectangular_causal", accepted)
    if "tree" in supports.masks:
        shortest = rows.first() or 1
        _require(
            keys.first(shortest) is not None, supports, "seq_k", f"a length >= {shortest}, because masks hold tree"
        )


def _configs(supports: Supports) -> tuple[Launch, ...]:
    accepted = "mappings of names to integers, and launch is empty"
    _require(not (supports.launch and supports.launch_configs), supports, "launch_configs", accepted)
    found = []
    for config in supports.launch_configs:
        try:
            pairs = dict(config)
        except (TypeError, ValueError):
            pairs = {}
        fits = bool(pairs) and all(isinstance(n, str) and n.isidentifier() for n in pairs)
        fits = fits and all(isinstance(value, int) for value in pairs.values())
        _require(fits, supports, "launch_configs", accepted)
        found.append(tuple(sorted(pairs.items())))
    return tuple(dict.fromkeys(found))


def _is_scale(scale: object) -> bool:
    return scale in _SCALES if isinstance(scale, str) else isinstance(scale, int | float) and math.isfinite(scale)


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 1


def _require(condition: bool, supports: Supports, name: str, accepted: str) -> None:
    if not condition:
        raise UsageError(f"Supports({name}={getattr(supports, name)!r}) is not accepted: {accepted}")
