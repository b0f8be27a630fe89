"""What a compiled kernel is compiled anew for. Random cases would be one compilation each; a finite list is not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

from flashverify.case.space.launches import launch_of_key
from flashverify.case.space.optional_parts import alignments, all_extras, all_parts, block_sizes, combine, extra_masks
from flashverify.case.space.traced import Traced, traced_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.case.space.heads import Heads
    from flashverify.case.supports import Supports

__all__ = ["CompileKey", "list_compile_keys", "page_choices", "usual_kinds"]

_UNALIGNED_EVERY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileKey:
    """One compilation: everything that a kernel may be specialised on, sizes and strides apart.

    Attributes:
        dims: (dim_qk, dim_v).
        dtype: of q, k, v.
        precision: of fp32 products.
        parts: of the mask.
        aligned: whether pointers and strides are multiples of 16 bytes.
        launch: launch parameters.
        features: modifications of the logits, and `dropout`.
        block: rows and keys of a block, where the mask has blocks.
        page_size: of a paged k and v.
        traced: what a function that torch traces is compiled anew for besides; None of any other subject.
    """

    dims: tuple[int, int]
    dtype: str
    precision: str
    parts: frozenset[str]
    aligned: bool
    launch: tuple[tuple[str, int], ...]
    features: frozenset[str] = frozenset()
    block: tuple[int, int] = (16, 16)
    page_size: int | None = None
    traced: Traced | None = None


def list_compile_keys(
    supports: Supports,
    dims: list[tuple[int, int]],
    formats: list[tuple[str, str]],
    count: int,
    heads: Sequence[Heads] = (),
) -> tuple[CompileKey, ...]:
    """At most `count` different keys, spread over all combinations of dims, format, mask parts and extras.

    The combinations are walked in steps of the golden section, so that any stretch of them holds every value of every axis and
    most pairs. Every fourth key is unaligned; launch configurations, block and page sizes take turns.

    Args:
        supports: what the subject declares.
        dims: (dim_qk, dim_v) to choose from.
        formats: (dtype, precision) to choose from.
        count: how many.
        heads: (batch, heads_q, heads_kv) to choose from, of a subject that torch traces.
    """
    pairs, bases, extras = list(dict.fromkeys(dims)), all_parts(supports), all_extras(supports)
    total = len(pairs) * len(formats) * len(bases) * len(extras)
    step, stride = _golden(total), _golden(len(bases))
    turns: Counter[frozenset[str]] = Counter()
    keys: dict[CompileKey, None] = {}
    blocks, pages = block_sizes(supports), page_choices(supports)
    sparse, sparse_masks = 0, extra_masks(supports)
    for i in range(count):
        rest, extra = divmod(i * step % total, len(extras))
        rest, base = divmod(rest, len(bases))
        pair, (dtype, precision) = pairs[rest // len(formats)], formats[rest % len(formats)]
        if len(extras) > 1:  # so that packed and sparse masks, a few keys each, still meet every band and a tree
            own = extras[extra].intersection(sparse_masks)
            base = turns[own] * stride % len(bases)
            turns[own] += 1
        parts, features = combine(supports, bases[base], extras[extra])
        if ends := alignments(supports, parts):
            parts |= ends[i % len(ends)]
        aligned = not supports.unaligned or i % _UNALIGNED_EVERY != _UNALIGNED_EVERY - 1
        launch = launch_of_key(supports, i)
        block = blocks[sparse % len(blocks)] if "blocks" in parts else (16, 16)
        sparse += "blocks" in parts
        page = None if "packed" in parts else pages[i % len(pages)]
        key = CompileKey(
            dims=pair,
            dtype=dtype,
            precision=precision,
            parts=parts,
            aligned=aligned,
            launch=launch,
            features=features,
            block=block,
            page_size=page,
            traced=traced_of(supports, heads, i, parts, aligned=aligned),
        )
        keys.setdefault(key)
    return tuple(keys)


def _golden(total: int) -> int:
    """The step, without a common factor with `total`, nearest above the golden section of it."""
    return next(s for s in range(round(0.618 * total) or 1, 2 * total) if gcd(s, total) == 1)


def page_choices(supports: Supports) -> tuple[int | None, ...]:
    """Page sizes to choose from, contiguous among them unless all are paged; no less than two in three are."""
    if supports.always_paged:
        return supports.page_sizes
    return (None, *supports.page_sizes, *supports.page_sizes[:1])


def usual_kinds(supports: Supports, kinds: int) -> int:
    """How many kinds of a list of `kinds` a subject has: a third more for one with every extra."""
    extras = len(supports.logits) + supports.dropout + len(extra_masks(supports))
    return kinds + kinds * extras // 24
