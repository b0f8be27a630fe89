"""A process that reads a piece of the results of a run, says what it found, and keeps it in the index of the run.

`python -m flashverify.report.segment_process RUN_DIR NUMBER BEGIN END` is such a process; it writes a segment to stdout.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.store.account import AccountBuilder
from flashverify.campaign.store.reader import open_run
from flashverify.campaign.store.results import Bad
from flashverify.campaign.store.segments import Segment, reader_version, write_segment
from flashverify.report.aggregate import Aggregate
from flashverify.report.columns import ColumnsBuilder
from flashverify.report.stored_aggregate import pack_aggregate

if TYPE_CHECKING:
    from flashverify.campaign.store.reader import StoredRun
    from flashverify.campaign.store.results import Piece

__all__ = ["segment_of"]


def segment_of(run: StoredRun, piece: Piece) -> Segment | None:
    """What a piece holds; None where a line of it is damaged, blank or repeated."""
    marks, bad, digest = set[bytes](), Bad(), hashlib.sha256()
    aggregate, account, columns, offset = Aggregate(), AccountBuilder(), ColumnsBuilder(), 0
    for result, line in run.piece(piece, marks, bad):
        aggregate.add(result)
        account.add(result, offset)
        columns.add(result, offset)
        digest.update(line)
        offset += len(line)
    if bad.lines or bad.repeated or offset != piece[1] - piece[0]:
        return None
    return Segment(
        version=reader_version(),
        piece=piece,
        digest=digest.digest(),
        marks=b"".join(sorted(marks)),
        account=account.packed(),
        aggregate=pack_aggregate(aggregate),
        columns=msgspec.msgpack.encode(columns.columns()),
    )


def main() -> int:
    """Answer for one piece; 1 where a line of it is not sound."""
    folder, number, begin, end = sys.argv[1:]
    run = open_run(folder)
    segment = segment_of(run, (int(begin), int(end)))
    if segment is None:
        return 1
    write_segment(Path(folder), int(number), segment)
    sys.stdout.buffer.write(segment.packed())
    return 0


if __name__ == "__main__":
    sys.exit(main())
