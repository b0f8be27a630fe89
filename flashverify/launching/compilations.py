"""Compilations of Triton kernels in this process: counted, or refused where a launch would wait for one."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Compilations", "NotCompiled", "compiled_kernels_only", "counting_compilations"]

_MICRO = 1e-6


class NotCompiled(BaseException):
    """A launch asks for a kernel that is not in Triton's cache on the disk. No `except Exception` of a subject takes it for its own."""


@dataclass
class Compilations:
    """What Triton's compiler was asked for.

    Attributes:
        compiled: kernels that were compiled.
        stored: kernels that were in the cache on the disk.
        seconds: that the compiler took, wall clock.
    """

    compiled: int = 0
    stored: int = 0
    seconds: float = 0.0

    def took(self, times: Any, *, stored: bool) -> None:
        """Count one.

        Args:
            times: `triton.knobs.CompileTimes`.
            stored: whether it was in the cache.
        """
        self.stored += stored
        self.compiled += not stored
        self.seconds += _MICRO * float(times.total)


@contextlib.contextmanager
def counting_compilations() -> Iterator[Compilations]:
    """Until the end of the block every request to Triton's compiler is counted, but for those that are a part of what torch compiles.

    There are none where Triton is not installed.

    Yields:
        The counts, which grow.
    """
    found = Compilations()
    try:
        from triton import knobs
    except ImportError:
        yield found
        return
    before = knobs.compilation.listener

    from flashverify.launching.traces import traces

    def listen(*, times: Any, cache_hit: bool, **others: Any) -> None:
        if not traces.running:
            found.took(times, stored=cache_hit)
        if before is not None:
            before(times=times, cache_hit=cache_hit, **others)

    knobs.compilation.listener = listen
    try:
        yield found
    finally:
        knobs.compilation.listener = before


@contextlib.contextmanager
def compiled_kernels_only() -> Iterator[None]:
    """Until the end of the block a launch whose kernel is neither loaded nor in the cache on the disk raises `NotCompiled`.

    Triton looks a kernel up before it makes any intermediate code, so that the first step of a compilation is where it is refused.
    """
    try:
        from triton.compiler import ASTSource
    except ImportError:
        yield
        return
    before = ASTSource.make_ir

    def refuse(source: Any, *_: Any, **__: Any) -> Any:
        raise NotCompiled(source.name)

    ASTSource.make_ir = refuse
    try:
        yield
    finally:
        ASTSource.make_ir = before
