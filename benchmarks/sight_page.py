"""The records of `benchmarks/sight.py` as the tables of docs/sight.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LINES", "Sight", "latest", "page", "read"]

LINES = msgspec.json.Encoder()
ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "sight.md"
RECORDS = {
    "In the interpreter": "reports/cpu/sight/sight.jsonl",
    "On an H200": "reports/h200/sight/sight.jsonl",
}
_BEGIN, _END = "<!-- tables: python benchmarks/sight.py page --write -->", "<!-- end of the tables -->"


class Sight(msgspec.Struct, omit_defaults=True):
    """What the checks said of one defect at one length.

    Attributes:
        defect: its name.
        length: of the keys, three fewer than the case has.
        dtype: of the inputs.
        seen: checks that failed, each with its output; empty where none did, whatever the values.
        regime: the values that showed it.
        same: at its own launch the defective kernel returned the bits of the right one in every case.
        tiles: rows and keys of the tiles that alone showed it; 0 where its own launch did, or nothing.
    """

    defect: str
    length: int
    dtype: str
    seen: tuple[str, ...]
    regime: str = ""
    same: bool = False
    tiles: int = 0

    @property
    def hidden(self) -> bool:
        """Whether the defect changes an output and no check sees it."""
        return not self.seen and not self.same


def read(file: Path) -> list[Sight]:
    """The last line of each place of a record; none of a file that is not there."""
    lines = file.read_bytes().splitlines() if file.exists() else []
    return latest([msgspec.json.decode(line, type=Sight) for line in lines])


def latest(sights: Sequence[Sight]) -> list[Sight]:
    """The last one of each place."""
    return list({(s.defect, s.length, s.dtype): s for s in sights}.values())


def page(defects: Sequence[str], dtypes: Sequence[str], *, write: bool) -> int:
    """Print docs/sight.md with the tables of the records that are there, or write it."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(_BEGIN)
    found = {title: read(ROOT / record) for title, record in RECORDS.items()}
    tables = [f"## {title}\n{tables_of(seen, defects, dtypes)}" for title, seen in found.items() if seen]
    text = f"{before}{_BEGIN}\n\n" + "\n".join(tables) + f"\n{_END}{rest.split(_END)[1]}"
    if write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


def tables_of(seen: list[Sight], defects: Sequence[str], dtypes: Sequence[str]) -> str:
    """A row a defect and dtype: the checks that see it at each length; and before it the rows that a length hides from every check."""
    lengths = sorted({s.length for s in seen})
    by_place = {(s.defect, s.dtype, s.length): s for s in seen}
    lines = [f"| defect | dtype | {' | '.join(map(str, lengths))} |", f"|---|---|{'---|' * len(lengths)}"]
    hidden = []
    for defect in defects:
        for dtype in dtypes:
            cells = [by_place.get((defect, dtype, length)) for length in lengths]
            if any(cells):
                lines.append(f"| {defect} | {dtype} | {' | '.join('' if s is None else checks(s) for s in cells)} |")
            unseen = [str(s.length) for s in cells if s is not None and s.hidden]
            if unseen and defect != defects[0]:
                hidden.append(f"`{defect}` in {dtype} at {', '.join(unseen)}")
    said = (
        f"Not seen by any check: {'; '.join(hidden)}."
        if hidden
        else "Every defect is seen by a check at every length that was judged."
    )
    absent = sum(s.same and s.defect != defects[0] for s in seen)
    if absent:
        said += f" At {absent} places the launch that the kernel chooses leaves nothing to see (`=`)."
    return f"{said}\n\n" + "\n".join(lines) + "\n"


def checks(sight: Sight) -> str:
    """The names of the checks that see a defect, and how it was seen where its own launch does not show it."""
    names = ", ".join(dict.fromkeys(each.split()[0] for each in sight.seen))
    marked = f"{names} in {sight.tiles}" if sight.tiles else names
    return " ".join(filter(None, ("=" if sight.same else "", marked))) or "–"
