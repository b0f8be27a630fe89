"""The one wording of a refused axis."""

from __future__ import annotations

from flashverify.errors import UsageError

__all__ = ["require"]


def require(condition: bool, name: str, value: object, accepted: str) -> None:
    """Raises a UsageError that names the axis, its value and what is accepted, unless the condition holds."""
    if not condition:
        raise UsageError(f"{name}={value!r} is not accepted: {accepted}")
