"""The masks in effect against the declared one, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.xray.declared import reasons
from flashverify.xray.record import Difference, Reading, Record, number
from flashverify.xray.regions import places, tiles

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from flashverify.case.case import Case
    from flashverify.xray.heads import HeadMap
    from flashverify.xray.measure import Xray
    from flashverify.xray.view import Count, View

__all__ = ["differences", "kinds", "record_of"]

_VERBS = {
    "leaked": "entered though masked",
    "dropped": "missing though visible",
    "doubled": "counted more than once",
    "not-integer": "weighted by no whole number, or not finite",
    "moved": "changed places within a bin",
}
_EITHER = "too many: entered though masked, or counted more than once"
"""What is wrong with a bin that holds masked pairs, where the count alone cannot tell which."""
_LISTED = 3


def kinds(view: View) -> dict[str, torch.Tensor]:
    """Bool cells by error; a cell has at most one."""
    if view.signed:
        return {"moved": view.delta != 0, "not-integer": view.broken}
    pairs = view.rows * view.keys
    more = view.delta > 0
    hidden = view.declared < pairs
    return {
        "leaked": more & hidden,
        "doubled": more & ~hidden,
        "dropped": view.delta < 0,
        "not-integer": view.broken,
    }


def differences(xray: Xray) -> tuple[Difference, ...]:
    """Everything that differs; empty where every mask is as declared."""
    found: list[Difference] = []
    if xray.count is not None:
        found += _of_count(xray.count)
    for view in xray.views:
        plain = xray.view(view.output)
        skip = plain.wrong if view.signed and plain is not None else None
        found += _of_view(xray.case, view, skip)
    for each in xray.maps:
        found += _of_map(xray.case, each)
    return tuple(found)


def _of_view(case: Case, view: View, skip: torch.Tensor | None) -> list[Difference]:
    if not bool(view.wrong.any()):
        return []
    import torch

    found = []
    part = f", keys {view.first_key}..{view.first_key + view.delta.shape[3] - 1} pair by pair" if view.zoomed else ""
    filled = "" if view.zoomed else tiles(_pattern(view.wrong)[0], view.rows, view.keys)
    for error, cells in kinds(view).items():
        hit = cells if skip is None else cells & ~skip
        if not bool(hit.any()):
            continue
        index = hit.nonzero()[0].tolist()
        counted = view.exact or error in ("leaked", "doubled", "dropped")
        count = int(view.delta[hit].abs().sum()) if counted and error != "not-integer" else int(hit.sum())
        what = number(count, "pair" if view.exact or counted else "bin")
        kind = _VERBS[error] if view.exact or error != "leaked" else _EITHER
        if error == "leaked":
            hidden = hit.nonzero() + torch.tensor([0, 0, 0, view.first_key], device=hit.device) if view.exact else None
            why = () if hidden is None else reasons(case, hidden)
            kind += f" ({', '.join(why)})" if why else ""
        pattern, heads = _pattern(hit)
        where = places(pattern, view.rows, view.keys, view.first_key)
        found.append(
            Difference(
                output=view.output,
                error=error,
                count=count,
                index=(index[0], index[1], index[2] * view.rows, index[3] * view.keys + view.first_key),
                message=f"{view.output}{part}: {what} {kind}: {where}{heads}"
                + (f"; all wrong pairs fill {filled}" if filled else ""),
            )
        )
    return found


def _pattern(cells: torch.Tensor) -> tuple[NDArray[np.bool_], str]:
    """The cells of the first head that has any as a numpy array, and in which heads they are."""
    flat = cells.flatten(0, 1).cpu()
    some = flat.flatten(1).any(1)
    first = int(some.int().argmax())
    total, affected = len(flat), int(some.sum())
    same = bool((flat[some] == flat[first]).all())
    if total == 1:
        words = ""
    elif affected == total:
        words = f", in each of {total} heads" + ("" if same else " its own; these are of the first")
    else:
        heads = cells.shape[1]
        names = [f"({n // heads}, {n % heads})" for n in some.nonzero().squeeze(1).tolist()]
        listed = ", ".join(names[:_LISTED]) + (" ..." if len(names) > _LISTED else "")
        words = f", in {affected} of {total} heads: (batch, head) {listed}"
        words += "" if same else "; places are of the first"
    return flat[first].numpy(), words


def _of_count(count: Count) -> list[Difference]:
    wrong = count.wrong
    if not bool(wrong.any()):
        return []
    index = tuple(wrong.nonzero()[0].tolist())
    got, want = float(count.found[index]), int(count.declared[index])
    rows = number(int(wrong.sum()), "row")
    return [
        Difference(
            output="lse",
            error="lse-count",
            count=int(wrong.sum()),
            index=index,
            message=f"lse: {rows} whose LSE is that of another number of keys: lse{list(index)} of {got:.6g} keys, not {want}",
        )
    ]


def _of_map(case: Case, each: HeadMap) -> list[Difference]:
    wrong = each.wrong
    bad = wrong.any(1).nonzero().squeeze(1).tolist()
    if not bad:
        return []
    readers, sources = (case.heads_q, case.heads_kv) if each.readers == "q" else (case.heads_kv, case.heads_q)
    what, verb = ("query head", "reads") if each.readers == "q" else ("kv head", "sums over")
    other = "kv head" if each.readers == "q" else "query head"

    def named(hits: torch.Tensor) -> str:
        numbers = hits.nonzero().squeeze(1).tolist()
        listed = [f"({n // sources}, {n % sources})" for n in numbers[:_LISTED]]
        return ", ".join(listed) + (" ..." if len(numbers) > _LISTED else "") if listed else "none"

    lines = [
        f"{what} ({n // readers}, {n % readers}) {verb} {other} {named(each.found[n])} instead of {named(each.declared[n])}"
        for n in bad[:_LISTED]
    ]
    more = f"; and {len(bad) - _LISTED} more" if len(bad) > _LISTED else ""
    role = {"v": "v", "k": "k", "dv": "dv", "dq": "k in dq", "dk": "q in dk"}[each.tensor]
    return [
        Difference(
            output={"v": "o", "k": "lse"}.get(each.tensor, each.tensor),
            error="head-map",
            count=len(bad),
            index=(bad[0] // readers, bad[0] % readers),
            message=f"heads of {role}, as (batch, head): {'; '.join(lines)}{more}",
        )
    ]


def record_of(xray: Xray) -> Record:
    """The record of an x-ray."""
    readings = tuple(
        Reading(
            output=view.output,
            rows=view.rows,
            keys=view.keys,
            signed=view.signed,
            cells=view.cells,
            unread=view.unread.numel() - view.cells,
            right=view.cells - int((view.wrong & ~view.unread).sum()),
            distance=round(view.distance, 6),
        )
        for view in xray.views
    )
    count = xray.count
    return Record(
        subject=xray.subject,
        case=str(xray.case),
        evidence=xray.evidence,
        differences=differences(xray),
        readings=readings,
        lse_rows=0 if count is None else count.declared.numel() - count.unresolved,
        lse_unresolved=0 if count is None else count.unresolved,
        heads=tuple(each.tensor for each in xray.maps),
        notes=xray.notes,
        launches=xray.launches,
        seconds=round(xray.seconds, 3),
    )
