"""The garbage collector in a worker: what a process holds for life is looked through once, not at every full collection."""

from __future__ import annotations

import gc

__all__ = ["settle_collector"]

_THRESHOLDS = (5_000, 20, 100)
"""Objects more, collections of the youngest, and of the middle generation, before the next one is collected. A judged case leaves some
5,000 objects; by Python's own 700, 10 and 10 the collector takes a fifteenth of a worker's time."""


def settle_collector() -> None:
    """Exempt every object that is alive now from collection, and collect the others more rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
