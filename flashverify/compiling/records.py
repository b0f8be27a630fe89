from __future__ import annotations

import msgspec

from flashverify.subjects.launches import Launch

__all__ = ["Built", "Compilation", "Hazard", "Job"]


class Hazard(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Code that is wrong for some input, or on some compiler, though it may give the right values here.

    Args:
        kind: `unfilled-load`, `int32-offset`, `atomic`, `narrow-product`, `grid-limit` or `undefined-register`.
        where: `file:line`; of machine code, the kernel and the address.
        what: one sentence.
    """

    kind: str
    where: str
    what: str


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """What the compiler made of one kernel.

    Args:
        registers: per thread.
        shared: shared memory per program, bytes.
        stack: local memory per thread, bytes: what spilled.
        loop_spills: accesses to local memory inside innermost loops; spills elsewhere cost next to nothing.
        hazards: each once.
    """

    registers: int
    shared: int
    stack: int
    loop_spills: int
    hazards: tuple[Hazard, ...] = ()


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One compilation to do: `deterministic` is the contract's promise, `hazards` are those of the launch itself."""

    subject: str
    capability: int
    deterministic: bool
    launch: Launch
    hazards: tuple[Hazard, ...] = ()


class Compilation(msgspec.Struct, frozen=True, kw_only=True):
    """One compilation that was tried.

    Args:
        subject: whose kernel.
        architecture: such as `sm_90`.
        kernel: its name.
        label: of the launch.
        built: what came out; None where it failed.
        error: why it failed.
    """

    subject: str
    architecture: str
    kernel: str
    label: str
    built: Built | None = None
    error: str = ""
