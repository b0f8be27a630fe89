"""Which failure a failure is, while it is minimised and counted."""

from __future__ import annotations

import msgspec

__all__ = ["Key"]


class Key(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """Identity of a failure while it is shrunk and bucketed.

    Attributes:
        subject: its name.
        check: that failed.
        error: class of the failure.
        output: that it concerns, empty where none.
        dtype: of the case.
        cause: 0, or 1, 2, ... for failures that look alike but have another cause than those before.
    """

    subject: str
    check: str
    error: str
    output: str
    dtype: str
    cause: int = 0

    def slug(self) -> str:
        """A name that is safe as a folder name."""
        cause = (str(self.cause + 1),) * (self.cause > 0)
        raw = "-".join((self.subject, self.check, self.error, self.output, self.dtype, *cause))
        return "".join(c if c.isalnum() or c in "-_." else "_" for c in raw)[:120].lstrip(".")
