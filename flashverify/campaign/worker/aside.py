"""The search for repairs that goes on while its worker does other things."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.protocol import Mended

if TYPE_CHECKING:
    from flashverify.campaign.worker.mend import Mender
    from flashverify.judge.verdict import Key

__all__ = ["Aside"]


class Aside:
    """A child that looks for repairs of a finding.

    Args:
        key: of the finding.
        mender: the child; it is ended with its time.
    """

    def __init__(self, key: Key, mender: Mender) -> None:
        self._key, self._mender, self._told = key, mender, 0

    def look(self) -> tuple[Mended | None, bool]:
        """What is new of it, and whether it is over; the last word is told where nothing was found too."""
        over = self._mender.look()
        found = self._mender.answers
        news = len(found) > self._told or (over and not found)
        self._told = len(found)
        if over:
            self._mender.close()
        return Mended(self._key, found, self._mender.failure) if news else None, over

    def close(self) -> None:
        """End it."""
        self._mender.close()
