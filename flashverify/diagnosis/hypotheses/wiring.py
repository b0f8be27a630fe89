"""Wrong wiring of the forward: an LSE that is stored elsewhere, K and V by other strides, pages of another table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.diagnosis.mask_tensors import exchanged, of_heads_open
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Places = Callable[[Scene, Tensor], Iterator[tuple[Tensor, str]]]

__all__ = ["WIRING", "pages_read", "stored", "table_width"]

_PAGE_SIZES = (1, 8, 16, 32, 64, 128, 256)


def stored(places: Places) -> Callable[[Scene], Iterator[Alternative]]:
    """The LSE of another element: `places` maps numbers of the elements `[B, Hq, Sq]` to those that are read, -1 to none."""

    def build(scene: Scene) -> Iterator[Alternative]:
        if "lse" not in scene.right:
            return
        own = torch.arange(scene.right["lse"].value.numel()).view(scene.right["lse"].value.shape)
        for moved, detail in places(scene, own):
            if torch.equal(moved, own):
                continue

            def finish(found: Expectations, moved: Tensor = moved) -> Expectations:
                if "lse" not in found:
                    return found
                lse = found["lse"]
                value, total, over = (x.flatten()[moved] for x in (lse.value, lse.total, lse.overflow))
                lse = replace(lse, value=value, total=total, overflow=over, strict=None)
                return found | {"lse": lse.unstored(moved < 0, scene.right["lse"], scene.outputs["lse"])}

            natural = scene.truth.forward()["lse"][0] * scene.unit

            def given(o: Tensor, lse: Tensor, natural: Tensor = natural) -> tuple[Tensor, Tensor]:
                return o, torch.where(
                    torch.isfinite(natural), natural, lse
                )  # a backward may keep a right one for itself

            yield Alternative(finish=finish, detail=detail)
            if scene.inputs.do is not None:
                yield Alternative(finish=finish, given=given, detail=detail)

    return build


def _other_row(_scene: Scene, own: Tensor) -> Iterator[tuple[Tensor, str]]:
    place = torch.arange(own.shape[2])
    last = max(own.shape[2] - 1, 0)
    yield own[..., (place + 1).clamp(max=last)], "the next one"
    yield own[..., (place - 1).clamp(min=0)], "the one before"
    yield own[..., :1].expand_as(own), "the first one"
    for size in (16, 32, 64, 128):
        if size < own.shape[2]:
            yield own[..., place // size * size], f"the first of a tile of {size}"


def _other_head(scene: Scene, own: Tensor) -> Iterator[tuple[Tensor, str]]:
    heads = torch.arange(own.shape[1])
    yield own.roll(-1, 1), "the next one"
    yield own.roll(1, 1), "the one before"
    yield own[:, :1].expand_as(own), "the first one"
    yield own[:, heads // scene.group * scene.group], "the first one of a group"
    yield own[:, heads // scene.group], "that with the number of the kv head"


def _other_layout(_scene: Scene, own: Tensor) -> Iterator[tuple[Tensor, str]]:
    """Stored as `[B, Sq, Hq]` and read as `[B, Hq, Sq]`, or with batch and head exchanged."""
    yield own.transpose(1, 2).reshape(own.shape), "heads and rows are exchanged"
    yield own.transpose(0, 1).reshape(own.shape), "batches and heads are exchanged"


def _exchanged_kv(scene: Scene) -> Iterator[Alternative]:
    i, case = scene.inputs, scene.case
    if case.batch * case.heads_kv < 2 or case.quantised is not None or case.mask.packed is not None:
        return
    for names in (("k",), ("v",), ("k", "v")):
        moved = {name: exchanged(getattr(i, name), case.batch, case.heads_kv) for name in names}
        lost = torch.stack([gone for _, gone in moved.values()]).any(0).repeat_interleave(scene.group, 1)
        inputs = replace(i, **{name: x for name, (x, _) in moved.items()})  # type: ignore[arg-type]
        if not all(torch.equal(x, getattr(i, name)) for name, (x, _) in moved.items()):
            yield Alternative(inputs=inputs, finish=of_heads_open(scene, lost), detail=f"of {' and '.join(names)}")


def pages_read(
    entries: Callable[[Scene, Tensor, int], Iterator[tuple[Tensor, str]]],
) -> Callable[[Scene], Iterator[Alternative]]:
    """Key j of sequence b is read at the slot j % page of entry `entries` `[B, Sk]` of the flat table; below 0, of a page itself."""

    def build(scene: Scene) -> Iterator[Alternative]:
        pages, case = scene.problem.pages, scene.case
        if pages is None or case.storage.page_size is None or not case.seq_k or case.quantised is not None:
            return
        own, flat = case.storage.page_size, pages.table.reshape(-1).long()
        j = torch.arange(case.seq_k)
        right = torch.arange(case.batch)[:, None] * pages.table.shape[1] + j // own
        told: list[Alternative] = []
        unsure: list[Alternative] = []
        for entry, detail in entries(scene, j, own):
            page = torch.where(entry < 0, -1 - entry, flat[entry.clamp(0, len(flat) - 1)])
            good = (entry < len(flat)) & (page >= 0) & (page < pages.k.shape[0])
            page, inside = page.clamp(0, pages.k.shape[0] - 1), j < scene.at.key_limit
            lost = inside & ~good
            # where every sequence leaves the table nothing can be said
            if bool((inside & (page != flat[right])).any()) and not bool(lost.any(-1).all()):
                found = _read(scene, page, (j % own).expand_as(page), lost, detail)
                (unsure if bool(lost.any()) else told).append(found)
        yield from (*told, *unsure)  # what asks something of every sequence first

    return build


def _read(scene: Scene, page: Tensor, slot: Tensor, lost: Tensor, detail: str) -> Alternative:
    """K and V by pages and slots `[B, Sk]`; nothing is asked of a sequence that has `lost` keys."""
    pages = scene.problem.pages
    assert pages is not None
    k, v = (
        torch.nan_to_num(pool[page, slot].double().movedim(2, 1), nan=0.0, posinf=0.0, neginf=0.0)
        for pool in (pages.k, pages.v)
    )
    rows = lost.any(-1).view(-1, 1, 1)

    def finish(found: Expectations) -> Expectations:
        where = {"o": rows.unsqueeze(-1), "lse": rows}
        return {name: x.open(where[name]) if name in where else x for name, x in found.items()}

    return Alternative(inputs=replace(scene.inputs, k=k, v=v), finish=finish, detail=detail)


def table_width(scene: Scene) -> int:
    """Entries of a row of the page table."""
    assert scene.problem.pages is not None
    return scene.problem.pages.table.shape[1]


def _first_table(scene: Scene, j: Tensor, own: int) -> Iterator[tuple[Tensor, str]]:
    yield (j // own).expand(scene.case.batch, -1), ""


def _entry_before(scene: Scene, j: Tensor, own: int) -> Iterator[tuple[Tensor, str]]:
    first = torch.arange(scene.case.batch)[:, None] * table_width(scene)
    yield first + (j // own - 1).clamp(min=0), ""


def _in_order(scene: Scene, j: Tensor, own: int) -> Iterator[tuple[Tensor, str]]:
    """Pages by their own numbers."""
    batch = torch.arange(scene.case.batch)[:, None]
    yield -1 - (batch * table_width(scene) + j // own), "as if they lay one after the other"
    yield (-1 - j // own).expand(scene.case.batch, -1), "from the begin of the pool for each sequence"


def _first_page(scene: Scene, j: Tensor, _own: int) -> Iterator[tuple[Tensor, str]]:
    yield (torch.arange(scene.case.batch)[:, None] * table_width(scene)).expand(-1, len(j)), ""


def _other_size(scene: Scene, j: Tensor, own: int) -> Iterator[tuple[Tensor, str]]:
    batch = torch.arange(scene.case.batch)[:, None]
    for size in _PAGE_SIZES:
        if size not in (own, 16):
            yield batch * table_width(scene) + j // size, f"{size} keys"


def _row_of_table(scene: Scene, j: Tensor, own: int) -> Iterator[tuple[Tensor, str]]:
    """The rows of the table begin as many entries apart as the sequence has pages, or its columns are read as its rows."""
    batch, pages = torch.arange(scene.case.batch)[:, None], -(-scene.at.key_limit[:, :1] // own)
    yield batch * pages + j // own, "by the pages of the sequence"
    yield batch * pages.amax() + j // own, "by the pages of the longest sequence"
    before = (pages.cumsum(0) - pages) if pages.numel() else pages
    yield before + j // own, "one behind the other, without room behind the pages that are used"
    yield (j // own) * scene.case.batch + batch, "sequences and entries are exchanged"


def _last_page_of_zeros(scene: Scene) -> Iterator[Alternative]:
    size, i = scene.case.storage.page_size, scene.inputs
    if scene.problem.pages is not None and size is not None and scene.case.quantised is None:
        at = scene.at
        kept = at.key < (at.key_limit - 1).clamp(min=0) // size * size
        kept = kept.view(kept.shape[0], 1, -1, 1)
        yield Alternative(inputs=replace(i, k=i.k * kept, v=i.v * kept))


def _semantics(
    name: str, sentence: str, build: Callable[[Scene], Iterator[Alternative]], *, one_way: bool = False
) -> Semantics:
    return Semantics(name=name, sentence=sentence, build=build, outputs=FORWARD, one_way=one_way)


WIRING = (
    Semantics(name="lse-of-another-row", sentence="a row gets the LSE of another one", build=stored(_other_row)),
    Semantics(name="lse-of-another-head", sentence="a head gets the LSE of another one", build=stored(_other_head)),
    Semantics(
        name="lse-in-another-layout",
        sentence="the LSE is stored in another layout than declared",
        build=stored(_other_layout),
    ),
    _semantics("kv-batch-head-exchanged", "the strides of K or V over batches and heads are exchanged", _exchanged_kv),
    _semantics(
        "page-table-of-first-sequence", "every sequence reads the page table of the first one", pages_read(_first_table)
    ),
    _semantics("page-before", "the page of a key is looked up one entry too early", pages_read(_entry_before)),
    _semantics(
        "pages-in-order",
        "the page table is not followed: pages are read in the order of the pool",
        pages_read(_in_order),
    ),
    _semantics(
        "page-last-as-zeros", "the last page of a sequence is read as zeros, which are seen", _last_page_of_zeros
    ),
    _semantics("page-first", "all keys are read from the first page of their sequence", pages_read(_first_page)),
    _semantics(
        "pages-of-another-size",
        "the page of a key is looked up as if pages held another number of keys",
        pages_read(_other_size),
        one_way=True,
    ),
    _semantics(
        "page-table-stride",
        "the rows of the page table are looked for at other places",
        pages_read(_row_of_table),
        one_way=True,
    ),
)
