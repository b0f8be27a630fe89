"""The aggregate of a large run: pieces of its results are added up by processes beside each other, and then together, in their order.

`python -m flashverify.report.pieces RUN_DIR BEGIN END` is such a process; it writes to stdout what only its parent reads.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.campaign.environment import cpu_count
from flashverify.campaign.store.reader import open_run
from flashverify.campaign.store.results import pieces
from flashverify.child_process import child_environment
from flashverify.report.aggregate import Aggregate

if TYPE_CHECKING:
    from flashverify.campaign.store.reader import StoredRun
    from flashverify.campaign.store.results import Piece

__all__ = ["aggregate_of"]

SIZE = 1 << 26
"""Bytes of a piece: some 25,000 cases, the work of some seconds."""
_MARK = 8


def aggregate_of(run: StoredRun) -> Aggregate:
    """The aggregate of the results of a run.

    A run whose lines are not all sound, each once, is read line by line: what is damaged is set aside and named there.

    Raises:
        StoreError: the results cannot be read.
    """
    found = pieces(run.path, SIZE) if run.record.sealed else []
    together = _together(run.path, found) if found else None
    return Aggregate.of(run.results()) if together is None else together


def _together(folder: Path, found: list[Piece]) -> Aggregate | None:
    """The aggregate of all pieces; None where a process could not do its part, or a line is in two of them."""
    whole, marks, lines = Aggregate(), set[bytes](), 0
    with ThreadPoolExecutor(min(cpu_count(), len(found))) as threads:
        for answer in threads.map(lambda piece: _asked(folder, piece), found):
            if answer is None:
                threads.shutdown(cancel_futures=True)
                return None
            aggregate, seen = answer
            whole.extend(aggregate)
            lines += len(seen) // _MARK
            marks.update(seen[at : at + _MARK] for at in range(0, len(seen), _MARK))
    return None if len(marks) < lines or whole.full else whole


def _asked(folder: Path, piece: Piece) -> tuple[Aggregate, bytes] | None:
    """What a process says of a piece: the aggregate and the marks of its lines; None where it found something damaged."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "flashverify.report.pieces", str(folder.absolute()), *map(str, piece)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=child_environment(interpret=False),
        check=False,
    )
    answer: tuple[Aggregate, bytes] | None = pickle.loads(done.stdout) if done.returncode == 0 else None
    return answer


def _answer(folder: Path, piece: Piece) -> tuple[Aggregate, bytes] | None:
    run, marks = open_run(folder), set[bytes]()
    known = len(run.problems)
    aggregate = Aggregate.of(run.piece(piece, marks))
    return None if len(run.problems) > known or aggregate.full else (aggregate, b"".join(marks))


def main() -> int:
    """Answer for one piece; 1 where a line of it is damaged or repeated."""
    folder, begin, end = sys.argv[1:]
    answer = _answer(Path(folder), (int(begin), int(end)))
    pickle.dump(answer, sys.stdout.buffer)
    return int(answer is None)


if __name__ == "__main__":
    sys.exit(main())
