"""Work on many things by threads beside each other; what comes of it in the order of the things."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from flashverify.campaign.environment import cpu_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["side_by_side"]

_Thing = TypeVar("_Thing")
_Made = TypeVar("_Made")


def side_by_side(work: Callable[[_Thing], _Made], things: Iterable[_Thing]) -> Iterator[_Made]:
    """What `work` makes of each, by a thread a CPU. Of what nobody took yet there is never more than two a thread."""
    threads = cpu_count()
    waiting: deque[Future[_Made]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for thing in things:
                waiting.append(pool.submit(work, thing))
                if len(waiting) >= 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
