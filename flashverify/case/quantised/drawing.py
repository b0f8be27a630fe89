"""Which quantisation a case has: drawn at random, and dealt out to the fixed lists."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flashverify.case.quantised.codes import CODES
from flashverify.case.quantised.quantised import SCALE_KINDS, SCALES, Quantised

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.masks.part import Source
    from flashverify.case.supports import Supports

__all__ = ["dealt", "draw_quantised", "quantised_refusals"]

_KINDS = ("fitted", "varied", *SCALE_KINDS)
"""Scales that differ from neighbour to neighbour show most defects."""
_BLOCKS = (16, 32, 1, 8, 5, 64, 128)
_DEALT_BLOCKS = (16, 32, 8)
_ATTEMPTS = 8


def draw_quantised(source: Source, supports: Supports, case: Case) -> Quantised:
    """A random one that the subject has and the case can have; if it can be, one that `supports.also` accepts with the launch values drawn."""
    for _ in range(_ATTEMPTS):
        found = _draw(source, supports, case)
        if supports.also is None or supports.also(replace(case, quantised=found)) is None:
            break
    return found


def _draw(source: Source, supports: Supports, case: Case) -> Quantised:
    codes = source.choice(_formats(supports, case))
    blocks = _blocks(supports, case, _BLOCKS)
    scales = source.choice(_scales(supports, blocks))
    zeros = supports.zero_points and not CODES[codes].is_float and source.flag()
    kind = source.choice(_KINDS)
    block = source.choice(blocks) if scales == "block" else Quantised().block
    ways = _of_q(supports, codes)
    q = (source.choice(ways) if len(ways) > 1 else ways[0]) == "codes"
    return Quantised(codes=codes, scales=scales, kind=kind, zeros=zeros, block=block, q=q)


def dealt(supports: Supports, case: Case, number: int) -> Case:
    """The case with a quantisation that the subject has, by its number in a list; one that it has already stays."""
    if not supports.quantised or case.quantised is not None:
        return case
    size = case.storage.page_size if case.storage.page_size in supports.page_sizes else None
    if size is None and supports.always_paged:
        size = supports.page_sizes[number % len(supports.page_sizes)]
    kept = size is not None and (case.storage.kept_pages or not supports.freed_pages)
    storage = replace(case.storage, expand=False, transposed=False, page_size=size, kept_pages=kept)
    case = replace(case, storage=storage)
    blocks = _blocks(supports, case, _DEALT_BLOCKS)
    formats, scales = _formats(supports, case), _scales(supports, blocks)
    codes = formats[number % len(formats)]
    shared = scales[number // len(formats) % len(scales)]
    kind = SCALE_KINDS[number // 3 % len(SCALE_KINDS)]
    block = blocks[number % len(blocks)] if shared == "block" else Quantised().block
    zeros = supports.zero_points and not CODES[codes].is_float and number % 2 == 1
    ways = _of_q(supports, codes)
    q = ways[number // 2 % len(ways)] == "codes"
    found = Quantised(codes=codes, scales=shared, kind=kind, zeros=zeros, block=block, q=q)
    return replace(case, grad=replace(case.grad, backward=False, dlse=False, do="dense"), quantised=found)


def _formats(supports: Supports, case: Case) -> list[str]:
    even = case.dim_qk % 2 == 0 == case.dim_v % 2 and "values" in supports.quantised_q
    names = [name for name in CODES if name in supports.quantised]
    return [name for name in names if even or CODES[name].per_byte == 1] or names


def _blocks(supports: Supports, case: Case, usual: tuple[int, ...]) -> list[int]:
    """Keys of a block that divide a page; where none does, a block is a page, if any number is accepted."""
    size = case.storage.page_size
    whole = [n for n in supports.quantised_blocks or usual if size is None or size % n == 0]
    return whole or ([] if supports.quantised_blocks or size is None else [size])


def _scales(supports: Supports, blocks: list[int]) -> list[str]:
    return [name for name in SCALES if name in supports.quantised_scales and (name != "block" or blocks)]


def _of_q(supports: Supports, codes: str) -> list[str]:
    """What q may be beside K and V of a format."""
    return [name for name in supports.quantised_q if name == "values" or CODES[codes].per_byte == 1]


def quantised_refusals(supports: Supports, case: Case) -> tuple[tuple[bool, str], ...]:
    """Rules as `flashverify.case.refusals` lists them."""
    how = case.quantised
    if how is None:
        return ((bool(supports.quantised), f"k and v without codes, it has quantised={supports.quantised} alone"),)
    blocks = supports.quantised_blocks
    return (
        (how.codes not in supports.quantised, f"quantised codes={how.codes}, it has {supports.quantised}"),
        (how.scales not in supports.quantised_scales, f"scales={how.scales}, it has {supports.quantised_scales}"),
        (how.scales == "block" and bool(blocks) and how.block not in blocks, f"block={how.block}, it has {blocks}"),
        (how.zeros and not supports.zero_points, "zeros=yes"),
        (("codes" if how.q else "values") not in supports.quantised_q, f"q={how.q}, it has {supports.quantised_q}"),
    )
