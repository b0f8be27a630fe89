"""Wrong numbers of keys that are counted in pages, and lengths of 0 that are taken for missing ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.lengths import raw
from flashverify.diagnosis.hypotheses.lengths_of_others import banded
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.mask_tensors import with_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Keys = Callable[[Tensor, int], Tensor]
    """Of the numbers of keys and the size of a page, other numbers of keys."""

__all__ = ["PAGE_LENGTHS"]


def _in_pages(change: Keys) -> Callable[[Scene], Iterator[Alternative]]:
    """Other numbers of keys, none of them larger; the diagonal moves with them, or does not."""

    def build(scene: Scene) -> Iterator[Alternative]:
        size, case = scene.case.storage.page_size, scene.case
        if size is None or case.mask.packed is not None:
            return
        keys = torch.tensor(case.keys_inside or (case.seq_k,) * case.batch)
        rows = torch.tensor(case.rows_inside or (case.seq_q,) * case.batch)
        number = change(keys, size).clamp(min=0).minimum(keys)
        if torch.equal(number, keys):
            return
        yield from _with_keys(scene, number, rows)

    return build


def _with_keys(scene: Scene, number: Tensor, rows: Tensor) -> Iterator[Alternative]:
    part = {"keys": scene.at.key[:, None, None, :] < number.view(-1, 1, 1, 1)}
    yield Alternative(inputs=raw(scene, with_parts(scene, **part)))
    if scene.case.mask.aligned_at_end:
        moved = banded(scene, (number - rows).view(-1, 1, 1, 1))
        yield Alternative(inputs=raw(scene, with_parts(scene, **part, **moved)))


def _zero_as_missing(*names: str) -> Callable[[Scene], Iterator[Alternative]]:
    """A length of 0 means the room: of the keys, of the rows, or of both."""

    def build(scene: Scene) -> Iterator[Alternative]:
        case, at, mask = scene.case, scene.at, scene.case.mask
        given = {"keys": mask.key_lengths, "rows": mask.query_lengths}
        if any(not given[name] or 0 not in (given[name] or ()) for name in names):
            return
        keys = torch.tensor(mask.key_lengths or (case.seq_k,) * case.batch)
        rows = torch.tensor(mask.query_lengths or (case.seq_q,) * case.batch)
        part = {}
        if "keys" in names:
            keys = torch.where(keys == 0, case.seq_k, keys)
            part["keys"] = at.key[:, None, None, :] < keys.view(-1, 1, 1, 1)
        if "rows" in names:
            rows = torch.where(rows == 0, case.seq_q, rows)
            part["rows"] = at.row[:, None, :, None] < rows.view(-1, 1, 1, 1)
        yield Alternative(inputs=raw(scene, with_parts(scene, **part)))
        if mask.aligned_at_end:
            moved = banded(scene, (keys - rows).view(-1, 1, 1, 1))
            yield Alternative(inputs=raw(scene, with_parts(scene, **part, **moved)))

    return build


PAGE_LENGTHS = (
    Semantics(
        name="full-last-page-missing",
        sentence="the last page of a sequence is left out where it is full: as many of its keys count as keys % page size says",
        build=_in_pages(lambda keys, size: torch.where(keys % size == 0, keys - size, keys)),
    ),
    Semantics(
        name="last-page-missing",
        sentence="the last page of a sequence is left out, full or not",
        build=_in_pages(lambda keys, size: (keys - 1).clamp(min=0) // size * size),
    ),
    Semantics(
        name="partial-last-page-missing",
        sentence="the number of keys is rounded down to whole pages: a last page that is not full is left out",
        build=_in_pages(lambda keys, size: keys // size * size),
    ),
    Semantics(
        name="keys-of-the-last-page-alone",
        sentence="as many keys are seen as the last page holds, from the first key on",
        build=_in_pages(lambda keys, size: torch.where(keys > 0, (keys - 1) % size + 1, 0)),
    ),
    Semantics(
        name="keys-of-one-page-at-most",
        sentence="no more keys are seen than one page holds",
        build=_in_pages(lambda keys, size: keys.clamp(max=size)),
    ),
    Semantics(
        name="key-lengths-zero-as-missing",
        sentence="a key length of 0 is taken for a missing one: all keys of the room are seen",
        build=_zero_as_missing("keys"),
    ),
    Semantics(
        name="query-lengths-zero-as-missing",
        sentence="a query length of 0 is taken for a missing one: all rows of the room are computed",
        build=_zero_as_missing("rows"),
    ),
    Semantics(
        name="lengths-zero-as-missing",
        sentence="query and key lengths of 0 are taken for missing ones: all rows and keys of the room count",
        build=_zero_as_missing("keys", "rows"),
    ),
)
