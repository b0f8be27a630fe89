"""Events out of the bytes of a worker, however they are cut."""

from __future__ import annotations

import msgspec

from flashverify.campaign.protocol.events import Event, decode_event

__all__ = ["EventLines"]

_MAX_EVENT_BYTES = 64 * 1024 * 1024


class EventLines:
    """Keeps the beginning of a line until its end comes."""

    def __init__(self) -> None:
        self._rest = b""

    def events(self, data: bytes) -> list[Event]:
        """The events that end in `data`.

        Raises:
            msgspec.MsgspecError: what came is no event.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_EVENT_BYTES:
            raise msgspec.DecodeError("an event is too long")
        return [decode_event(line) for line in lines]
