"""The listed entries of the fixed matrix, and those of paged keys."""

from __future__ import annotations

import functools
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.supports import Supports

__all__ = ["decodes", "large_features", "listed", "paged"]


def listed(section: str) -> tuple[str, ...]:
    """The entries of a section of `matrix_entries.txt`, in order."""
    return _sections()[section]


@functools.cache
def _sections() -> dict[str, tuple[str, ...]]:
    text = resources.files("flashverify.case.space").joinpath("matrix_entries.txt").read_text(encoding="ascii")
    blocks = (block.splitlines() for block in text.split("\n\n") if block.startswith("["))
    return {
        name.strip("[]"): tuple(entry for entry in entries if entry and not entry.startswith("#"))
        for name, *entries in blocks
    }


def large_features() -> Iterator[str]:
    """Optional parts over many tiles, and long keys."""
    for shape in ("seq_q=257 seq_k=257 dim_qk=64 dim_v=64", "seq_q=130 seq_k=400 dim_qk=128 dim_v=128"):
        yield from (f"{part} {shape}" for part in listed("over many tiles"))
    yield from (f"seq_q=1 seq_k={n} dim_qk=128 dim_v=128 heads_q=8 batch=2" for n in (512, 1025, 2049))


def paged(page_sizes: tuple[int, ...]) -> Iterator[str]:
    """One entry after the other for each page size: whole pages, a tail of one key, unused pages, sequences without any."""
    for size in page_sizes:
        lengths = (size, size + 1, 2 * size - 1, 3 * size, 130)
        yield from (f"page_size={size} seq_q=1 seq_k={n} padding=nan" for n in lengths)
        yield f"page_size={size} seq_q=2 seq_k={3 * size} batch=3 klen={3 * size},0,{size + 1} padding=inf"
        yield f"page_size={size} seq_q=3 seq_k={2 * size + 3} causal=bottom-right heads_q=4 heads_kv=2 gap=8 layout=bshd"
        yield f"page_size={size} seq_q=4 seq_k={2 * size + 4} tree=-1,0,0,1 expand=yes"


def decodes(supports: Supports) -> bool:
    """Whether a subject is one of decoding, as it has few query rows or pages."""
    return supports.max_seq_q is not None or bool(supports.page_sizes)
