"""Work in numbered pieces that goes on where it was ended: a line of JSON a piece, kept beside the file until all are done."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = ["pieces"]


def pieces(
    work: Callable[..., dict[str, Any] | None], arguments: Iterable[tuple[Any, ...]], *, jobs: int, file: Path | None
) -> list[dict[str, Any]]:
    """What `work` returns for each tuple of arguments, in their order; what it returns None for is left out.

    Args:
        work: of a module; its first argument is the number of the piece.
        arguments: of each piece.
        jobs: processes.
        file: the record that is to be written of them; pieces that are done are kept in `FILE.part` meanwhile, and are not done again.
    """
    wanted = {each[0]: each for each in arguments}
    part = None if file is None else file.with_name(f"{file.name}.part")
    done = {number: found for number, found in _kept(part) if number in wanted}
    left = [each for number, each in wanted.items() if number not in done]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as processes:
        running = {processes.submit(work, *each): each[0] for each in left}
        for future in as_completed(running):
            number = running[future]
            done[number] = future.result()
            if part is not None:
                with part.open("a", encoding="utf-8") as out:
                    out.write(json.dumps([number, done[number]], separators=(",", ":")) + "\n")
    return [found for number in wanted if (found := done[number]) is not None]


def _kept(part: Path | None) -> list[tuple[int, dict[str, Any] | None]]:
    """The pieces of a part; a line that was cut off is none."""
    if part is None or not part.exists():
        return []
    text = part.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if whole != text:
        part.write_bytes(whole)
    return [tuple(json.loads(line)) for line in whole.splitlines()]
