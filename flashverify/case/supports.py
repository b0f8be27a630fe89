"""What the case space needs to know of a subject: `flashverify.subjects.interface.Supports`, seen from below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.case import Case

__all__ = ["Supports"]


class Supports(Protocol):
    """The cases that a subject accepts; `flashverify.subjects.interface.Supports` documents each field."""

    @property
    def dtypes(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def precisions(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def masks(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def combine_masks(self) -> bool: ...  # noqa: D102
    @property
    def causal(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def rectangular_causal(self) -> bool: ...  # noqa: D102
    @property
    def gqa(self) -> bool: ...  # noqa: D102
    @property
    def dim_multiple(self) -> int: ...  # noqa: D102
    @property
    def dim_max(self) -> int: ...  # noqa: D102
    @property
    def equal_dims(self) -> bool: ...  # noqa: D102
    @property
    def empty(self) -> bool: ...  # noqa: D102
    @property
    def scales(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def layouts(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def gaps(self) -> bool: ...  # noqa: D102
    @property
    def unaligned(self) -> bool: ...  # noqa: D102
    @property
    def expand(self) -> bool: ...  # noqa: D102
    @property
    def non_finite(self) -> bool: ...  # noqa: D102
    @property
    def backward(self) -> bool: ...  # noqa: D102
    @property
    def dlse(self) -> bool: ...  # noqa: D102
    @property
    def launch(self) -> tuple[tuple[str, tuple[int, ...]], ...]: ...  # noqa: D102
    @property
    def also(self) -> Callable[[Case], str | None] | None: ...  # noqa: D102

    def refusal(self, case: Case) -> str | None:
        """Why `case` is not supported, or None."""
