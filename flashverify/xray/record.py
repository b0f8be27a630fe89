"""What an x-ray found, as data and as text."""

from __future__ import annotations

import msgspec

__all__ = ["ERRORS", "Difference", "Reading", "Record", "number", "record_text"]

ERRORS = ("leaked", "dropped", "doubled", "not-integer", "moved", "head-map", "lse-count")
"""Masked pairs that entered; visible ones that did not; pairs that entered twice; readings that are no integer; pairs exchanged within
a bin; heads that read or sum others than declared; an LSE of another number of keys."""


def number(count: int, noun: str) -> str:
    """`1 pair`, `4,032 pairs`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of error in one output.

    Attributes:
        output: `o`, `lse`, `dv`, `dq`, `dk`.
        error: one of `ERRORS`.
        count: of pairs; of cells where a cell is a bin of pairs and the error does not say how many; of rows for `lse-count`; of
            heads for `head-map`.
        index: the first one: batch, query head, row and, for pairs, key; for `head-map` batch and head of the reader.
        message: one sentence.
    """

    output: str
    error: str
    count: int
    index: tuple[int, ...]
    message: str


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How much of one output's mask was read.

    Attributes:
        output: its name.
        rows: rows per cell.
        keys: keys per cell.
        signed: with random signs.
        cells: that were read.
        unread: cells that this output cannot tell, such as dS of a row with one key, which is 0.
        right: cells that are as declared.
        distance: largest distance from an integer.
    """

    output: str
    rows: int
    keys: int
    signed: bool
    cells: int
    unread: int
    right: int
    distance: float


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An x-ray.

    Attributes:
        subject: its name.
        case: its text.
        evidence: what it ran on.
        differences: empty where every mask is as declared.
        readings: one of every mask.
        lse_rows: rows whose number of keys the LSE told, and `lse_unresolved` those where it could not.
        heads: head maps that were read.
        notes: what could not be read, and why.
        launches: passes of the kernels.
        seconds: of all of it.
    """

    subject: str
    case: str
    evidence: str
    differences: tuple[Difference, ...]
    readings: tuple[Reading, ...]
    lse_rows: int
    lse_unresolved: int
    heads: tuple[str, ...]
    notes: tuple[str, ...]
    launches: int
    seconds: float


def record_text(record: Record) -> str:
    """The record for a reader."""
    lines = [f"{record.subject}  {record.case}", f"evidence: {record.evidence}", ""]
    for each in record.readings:
        pair = each.rows == each.keys == 1
        what = number(each.cells, "pair") if pair else f"{each.cells:,} cells of {each.rows} x {each.keys}"
        state = "as declared" if each.right == each.cells else f"{each.cells - each.right:,} differ"
        sign = ", random signs" if each.signed else ""
        unread = f", {each.unread:,} unread" if each.unread else ""
        lines.append(f"{each.output:4}{what}{sign}{unread}, at most {each.distance:.4f} from a whole number: {state}")
    if record.lse_rows or record.lse_unresolved:
        wrong = next((d.count for d in record.differences if d.error == "lse-count"), 0)
        unread = f", {record.lse_unresolved:,} unresolved" if record.lse_unresolved else ""
        lines.append(
            f"lse {record.lse_rows:,} rows counted{unread}: " + (f"{wrong:,} differ" if wrong else "as declared")
        )
    if record.heads:
        wrong = sum(d.error == "head-map" for d in record.differences)
        lines.append(f"heads of {', '.join(record.heads)}: " + (f"{wrong} maps differ" if wrong else "as declared"))
    lines += ["", *(f"note: {note}" for note in record.notes)] if record.notes else [""]
    if record.differences:
        lines += [f"{n}. {each.message}" for n, each in enumerate(record.differences, 1)]
    else:
        lines.append("Every mask is as declared.")
    lines.append(f"{record.launches} launches, {record.seconds:.1f} s")
    return "\n".join(lines)
