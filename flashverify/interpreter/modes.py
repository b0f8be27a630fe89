"""What is asked of the interpreter by those who also run where nothing is interpreted: it is not loaded for that."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FunctionType

    from flashverify.interpreter.repeats import Launches

__all__ = ["kernels_so_far", "launches", "line_by_line"]


def kernels_so_far() -> dict[CodeType, FunctionType]:
    """By the code that runs, the functions of kernels that were interpreted so far, as their files have them."""
    if not _loaded():
        return {}
    from flashverify.interpreter.exchanging import rewritten

    return rewritten()


@contextlib.contextmanager
def line_by_line() -> Iterator[None]:
    """Until the end of the block every line of an interpreted kernel, and of what it calls, runs in Python."""
    if not _loaded():
        yield
        return
    from flashverify.interpreter.exchanging import unrecorded

    with unrecorded():
        yield


def launches() -> Launches | None:
    """Room for the launches of one pass; None where nothing is interpreted."""
    if not _loaded():
        return None
    from flashverify.interpreter.repeats import Launches

    return Launches()


def _loaded() -> bool:
    return "flashverify.interpreter.session" in sys.modules
