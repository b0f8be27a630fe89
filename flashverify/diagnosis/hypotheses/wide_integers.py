"""Wrong semantics of 64-bit integers that are read as 32-bit ones: every second number is the upper half of another one, which is 0."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.prefix_lengths import in_prefix
from flashverify.diagnosis.hypotheses.lengths_of_others import changed_lengths
from flashverify.diagnosis.hypotheses.wiring import pages_read, table_width
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.mask_tensors import all_pairs, parts, seen
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["WIDE_INTEGERS"]

_SAID = "are 64-bit integers that are read as 32-bit ones: number 2 n is that of n, and every odd one is 0"


def _halves(numbers: Tensor) -> Tensor:
    """What 32-bit loads make of `numbers` of 64 bits, as many of them."""
    n = torch.arange(len(numbers))
    return torch.where(n % 2 == 0, numbers[n // 2], 0)


def _entries(scene: Scene, j: Tensor, own: int) -> Iterator[tuple[Tensor, str]]:
    """Entries of the page table; -1 is page 0 of the pool."""
    width, e = table_width(scene), j // own
    b = torch.arange(scene.case.batch)[:, None]
    yield torch.where(e % 2 == 0, b * width + e // 2, -1), "each row from its own begin on"
    flat = b * width + e
    yield torch.where(flat % 2 == 0, flat // 2, -1), "rows half as far apart"


def _prefixes(scene: Scene) -> Iterator[Alternative]:
    lengths, found = scene.case.mask.prefix_lengths, parts(scene)
    if not lengths or len(lengths) < 2:
        return
    pairs = all_pairs(scene)
    other = tuple(_halves(torch.tensor(lengths)).tolist())
    found["causal"] = (pairs.key <= pairs.position) | in_prefix(pairs, other)
    yield Alternative(inputs=replace(scene.inputs, visible=seen(found)))


WIDE_INTEGERS = (
    Semantics(
        name="key-lengths-of-64-bits",
        sentence=f"the key lengths {_SAID}",
        build=changed_lengths(lambda _rows, keys: _halves(keys), "key_lengths"),
    ),
    Semantics(
        name="query-lengths-of-64-bits",
        sentence=f"the query lengths {_SAID}",
        build=changed_lengths(lambda rows, _keys: _halves(rows), "query_lengths"),
    ),
    Semantics(name="prefix-lengths-of-64-bits", sentence=f"the prefix lengths {_SAID}", build=_prefixes),
    Semantics(
        name="page-table-of-64-bits",
        sentence=f"the entries of the page table {_SAID}, page 0 of the pool",
        build=pages_read(_entries),
        outputs=FORWARD,
    ),
)
