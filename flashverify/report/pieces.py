"""The results of a large run, piece by piece: what the index of the run has of it, or what a process beside this one reads."""

from __future__ import annotations

import subprocess
from functools import partial
from typing import TYPE_CHECKING

from flashverify.campaign.store.results import Bad, pieces
from flashverify.campaign.store.segments import Segment, any_repeated, kept_segment, segment_command
from flashverify.campaign.store.side_by_side import side_by_side
from flashverify.child_process import child_environment
from flashverify.report.aggregate import Aggregate
from flashverify.report.stored_aggregate import unpack_aggregate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flashverify.campaign.store.reader import StoredRun
    from flashverify.campaign.store.results import Piece
    from flashverify.judge.verdict import CaseResult

__all__ = ["RepeatedError", "aggregate_of", "read_pieces"]


class RepeatedError(Exception):
    """A line is in two pieces of a run, so that the pieces together are not the whole."""


def aggregate_of(run: StoredRun) -> Aggregate:
    """The aggregate of the results of a run: that of each piece, added up in their order.

    A run in which a line is in two pieces, or with more texts than are listed, is read line by line.

    Raises:
        StoreError: the results cannot be read.
    """
    whole = Aggregate()
    try:
        for _, part in read_pieces(run):
            found = unpack_aggregate(part.aggregate) if isinstance(part, Segment) else Aggregate.of(part)
            whole.extend(found)
            if found.full or whole.full:
                return Aggregate.of(run.results())
    except RepeatedError:
        return Aggregate.of(run.results())
    return whole


def read_pieces(run: StoredRun) -> Iterator[tuple[Piece, Segment | Iterator[CaseResult]]]:
    """What each piece holds, in their order: of one with damaged lines the results, to be read before the next is asked for.

    Raises:
        StoreError: the results cannot be read.
        RepeatedError: at the end.
    """
    found = pieces(run.path) if run.record.sealed else []
    if not found:
        yield (0, 0), run.results()
        return
    marks, bad = [], Bad()
    segments = side_by_side(partial(_segment, run.path), enumerate(found))
    for piece, segment in zip(found, segments, strict=True):
        if segment is not None:
            marks.append(segment.marks)
            yield piece, segment
        else:
            mine = set[bytes]()
            yield piece, (result for result, _ in run.piece(piece, mine, bad))
            marks.append(b"".join(mine))
    if any_repeated(marks):
        raise RepeatedError
    bad.tell(run.path, run.problems)


def _segment(folder: Path, numbered: tuple[int, Piece]) -> Segment | None:
    return kept_segment(folder, *numbered) or _asked(folder, *numbered)


def _asked(folder: Path, number: int, piece: Piece) -> Segment | None:
    """What a process says of a piece; None where it found a line that is not sound, or could not do its part."""
    done = subprocess.run(
        segment_command(folder, number, piece),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=child_environment(interpret=False),
        check=False,
    )
    return Segment.unpacked(done.stdout) if done.returncode == 0 else None
