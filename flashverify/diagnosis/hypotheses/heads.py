"""Wrong semantics of which head, sequence or page a key comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.expected import Expected
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.diagnosis.mask_tensors import of_heads_open
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.hypothesis import Finish
    from flashverify.diagnosis.observation import Scene

__all__ = ["HEADS"]

_WHICH = (("of k", True, False), ("of v", False, True), ("of k and v", True, True))


def _mapped(heads: Callable[[Tensor, int, int], Tensor]) -> Callable[[Scene], Iterator[Alternative]]:
    """Query head h reads kv head `heads(h, Hkv, group)`, of k, of v or of both; the gradients go to where they belong."""

    def build(scene: Scene) -> Iterator[Alternative]:
        case, i = scene.case, scene.inputs
        h = torch.arange(case.heads_q)
        read = heads(h, case.heads_kv, scene.group)
        wrong, right = read.clamp(0, case.heads_kv - 1), h // scene.group
        if bool((wrong == right).all()):
            return
        outside = of_heads_open(scene, (read != wrong).unsqueeze(0))
        for detail, of_k, of_v in _WHICH:
            k = i.k[:, wrong if of_k else right]
            v = i.v[:, wrong if of_v else right]
            inputs = replace(i, k=k, v=v)
            yield Alternative(inputs=inputs, finish=_then(_regroup(right, case.heads_kv), outside), detail=detail)

    return build


_PROGRAMS: tuple[tuple[str, Callable[[Tensor, Tensor, int, int, int], Tensor]], ...] = (
    ("b * Hq + h // group", lambda b, h, _batch, heads, group: b * heads + h // group),
    ("b * Hkv + h", lambda b, h, _batch, heads, group: b * (heads // group) + h),
    ("b * Hkv + h % group", lambda b, h, _batch, heads, group: b * (heads // group) + h % group),
    ("(b * Hq + h) % (B * Hkv)", lambda b, h, _batch, heads, _group: b * heads + h),
    ("(b * Hkv + h) // group", lambda b, h, _batch, heads, group: (b * (heads // group) + h) // group),
    ("(b + B * h) // group", lambda b, h, batch, _heads, group: (b + batch * h) // group),
    ("h // group", lambda b, h, _batch, _heads, group: 0 * b + h // group),
)
"""Numbers of a kv head among those of all sequences, of which b * Hkv + h // group is the right one."""


def _numbered(scene: Scene) -> Iterator[Alternative]:
    """K and V of the kv head with another number; numbers behind the last one begin again, or nothing is asked of what reads there."""
    case, i = scene.case, scene.inputs
    if case.batch < 2 or case.heads_q < 2:
        return
    group, count = scene.group, case.batch * case.heads_kv
    b, h = torch.meshgrid(torch.arange(case.batch), torch.arange(case.heads_q), indexing="ij")
    own = h[0] // group
    for words, number in _PROGRAMS:
        found = number(b, h, case.batch, case.heads_q, group)
        if torch.equal(found, b * case.heads_kv + h // group):
            continue
        at = found % count
        for detail, of_k, of_v in _WHICH:
            k = i.k.flatten(0, 1)[at] if of_k else i.k[:, own]
            v = i.v.flatten(0, 1)[at] if of_v else i.v[:, own]
            inputs, regrouped = replace(i, k=k, v=v), _regroup(own, case.heads_kv)
            yield Alternative(inputs=inputs, finish=regrouped, detail=f"{words}, {detail}")
            if bool((found >= count).any()):
                opened = _then(regrouped, of_heads_open(scene, found >= count))
                yield Alternative(inputs=inputs, finish=opened, detail=f"{words}, {detail}")


def _regroup(to: Tensor, heads: int) -> Callable[[Expectations], Expectations]:
    """DK and dV of each query head, added up at the kv head that `to` names."""

    def add(x: Tensor) -> Tensor:
        shape = (x.shape[0], heads, *x.shape[2:])
        return torch.zeros(shape, dtype=x.dtype).index_add_(1, to, x)

    def finish(found: Expectations) -> Expectations:
        for name in ("dk", "dv"):
            if name in found:
                x = found[name]
                over = add(x.overflow.double()) > 0
                found[name] = Expected(value=add(x.value), total=add(x.total), overflow=over, zero=x.zero)
        return found

    return finish


def _then(first: Finish, second: Finish | None) -> Finish:
    return first if second is None else lambda found: second(first(found))


def _batch(of: Callable[[Tensor, int], Tensor]) -> Callable[[Scene], Iterator[Alternative]]:
    """Sequence b reads the keys and values of sequence `of(b, B)`."""

    def build(scene: Scene) -> Iterator[Alternative]:
        batch, i = scene.case.batch, scene.inputs
        at = of(torch.arange(batch), batch)
        if bool((at == torch.arange(batch)).all()):
            return
        for detail, of_k, of_v in _WHICH:
            yield Alternative(inputs=replace(i, k=i.k[at] if of_k else i.k, v=i.v[at] if of_v else i.v), detail=detail)

    return build


def _pages(size: int | None, by: int = 0) -> Callable[[Scene], Iterator[Alternative]]:
    """The page of key j is looked up as entry j // size, `by` entries further on."""

    def build(scene: Scene) -> Iterator[Alternative]:
        pages, case = scene.problem.pages, scene.case
        if pages is None or case.storage.page_size is None or not case.seq_k or case.quantised is not None:
            return
        own = case.storage.page_size
        if (size or own) == own and not by:
            return
        j = torch.arange(case.seq_k)
        entry = torch.arange(case.batch)[:, None] * pages.table.shape[1] + j // (size or own) + by
        flat = pages.table.reshape(-1).long()
        page = flat[entry.clamp(0, len(flat) - 1)]
        good = (entry < len(flat)) & (page >= 0) & (page < pages.k.shape[0])
        page = page.clamp(0, pages.k.shape[0] - 1)
        slot = (j % own).expand_as(page)

        def read(pool: Tensor) -> Tensor:
            found = pool[page, slot].double().movedim(2, 1)  # [B, Hkv, Sk, D]
            return torch.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)

        lost = ~good if case.mask.key_lengths is None else ~good & (j < torch.tensor(case.mask.key_lengths)[:, None])
        rows = lost.any(-1).view(-1, 1, 1)

        def finish(found: Expectations) -> Expectations:
            where = {"o": rows.unsqueeze(-1), "lse": rows}
            return {name: x.open(where[name]) if name in where else x for name, x in found.items()}

        yield Alternative(inputs=replace(scene.inputs, k=read(pages.k), v=read(pages.v)), finish=finish)

    return build


HEADS = (
    Semantics(
        name="head-modulo",
        sentence="query head h reads kv head h % Hkv instead of h // (Hq // Hkv)",
        build=_mapped(lambda h, kv, _group: h % kv),
    ),
    Semantics(
        name="head-modulo-group",
        sentence="query head h reads kv head h % (Hq // Hkv) instead of h // (Hq // Hkv)",
        build=_mapped(lambda h, kv, group: (h % group) % kv),
    ),
    Semantics(
        name="head-over-hkv",
        sentence="query head h reads kv head h // Hkv instead of h // (Hq // Hkv)",
        build=_mapped(lambda h, kv, _group: h // kv),
    ),
    Semantics(
        name="head-first",
        sentence="every query head reads the first kv head",
        build=_mapped(lambda h, _kv, _group: h * 0),
    ),
    Semantics(
        name="head-next",
        sentence="every query head reads the kv head after its own",
        build=_mapped(lambda h, kv, group: (h // group + 1) % kv),
    ),
    Semantics(
        name="head-before",
        sentence="every query head reads the kv head before its own",
        build=_mapped(lambda h, kv, group: (h // group - 1) % kv),
    ),
    Semantics(
        name="head-mirrored",
        sentence="every query head reads the kv head as far from the last one as its own is from the first",
        build=_mapped(lambda h, kv, group: kv - 1 - h // group),
    ),
    Semantics(
        name="head-last",
        sentence="every query head reads the last kv head",
        build=_mapped(lambda h, kv, _group: 0 * h + kv - 1),
    ),
    Semantics(
        name="head-clamped",
        sentence="query head h reads kv head h, and the last kv head where there is none",
        build=_mapped(lambda h, kv, _group: h.clamp(max=kv - 1)),
    ),
    Semantics(
        name="head-numbered-otherwise",
        sentence="query head h of sequence b reads the kv head with another number than b * Hkv + h // group",
        build=_numbered,
        one_way=True,
    ),
    Semantics(
        name="batch-first",
        sentence="every sequence of the batch reads the keys of the first one",
        build=_batch(lambda b, _n: b * 0),
    ),
    Semantics(
        name="batch-next",
        sentence="every sequence of the batch reads the keys of the next one",
        build=_batch(lambda b, n: (b + 1) % n),
    ),
    Semantics(
        name="batch-before",
        sentence="every sequence of the batch reads the keys of the one before, the first one its own",
        build=_batch(lambda b, _n: (b - 1).clamp(min=0)),
    ),
    Semantics(
        name="batch-before-in-turn",
        sentence="every sequence of the batch reads the keys of the one before, the first one those of the last",
        build=_batch(lambda b, n: (b - 1) % n),
    ),
    Semantics(
        name="batch-mirrored",
        sentence="every sequence of the batch reads the keys of the one as far from the last as it is from the first",
        build=_batch(lambda b, n: n - 1 - b),
    ),
    Semantics(
        name="batch-last",
        sentence="every sequence of the batch reads the keys of the last one",
        build=_batch(lambda b, n: 0 * b + n - 1),
    ),
    Semantics(
        name="pages-of-sixteen",
        sentence="the page of a key is looked up as if pages held 16 keys",
        build=_pages(16),
        outputs=FORWARD,
    ),
    Semantics(
        name="page-next",
        sentence="the page of a key is looked up one entry further on",
        build=_pages(None, 1),
        outputs=FORWARD,
    ),
)
