"""Triton's CPU interpreter made faithful and fast; it knows nothing of what the kernels compute.

`with faithful():` around the life of a process gives bf16, fp8 and tf32 their compiled meaning, makes minima, maxima and
conversions treat NaN and overflow as compiled kernels do, and runs all programs of a launch in lockstep. TRITON_INTERPRET=1
must have been set before triton was imported. Further semantics are mixins over `Layer`.

A failure seen in lockstep can be repeated with `faithful(lockstep=False)`: the results are the same, bit for bit, except
where programs race.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from flashverify.interpreter.counters import Counts, Traffic, count
from flashverify.interpreter.hooks import check_hooks
from flashverify.interpreter.layer import Launch, Layer, Unsupported
from flashverify.interpreter.nonfinite import Event, Trace, trace
from flashverify.interpreter.reports import FILLS, Lane, Report, Watch
from flashverify.interpreter.sanitizer import Sanitizer, watch
from flashverify.interpreter.selftest import self_test
from flashverify.interpreter.session import ELEMENTS, Session, active, session

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ELEMENTS",
    "FILLS",
    "Counts",
    "Event",
    "Lane",
    "Launch",
    "Layer",
    "Report",
    "Sanitizer",
    "Session",
    "Trace",
    "Traffic",
    "Unsupported",
    "Watch",
    "active",
    "check_hooks",
    "count",
    "faithful",
    "self_test",
    "session",
    "trace",
    "watch",
]


@contextlib.contextmanager
def faithful(*mixins: type[Layer], **options: Any) -> Iterator[Session]:
    """Open a session and prove by a self-test that it computes what it should.

    Args:
        mixins: see `session`.
        options: see `session`.

    Yields:
        The session.

    Raises:
        UsageError: see `session`.
        SelfCheckError: the self-test failed.
    """
    with session(*mixins, **options) as opened:
        self_test(opened)
        yield opened
