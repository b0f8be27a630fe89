"""What a group of workers says to the machine of the supervisor: small bytes, never a tensor."""

from __future__ import annotations

import msgspec

from flashverify.campaign.worker.inflight import Inflight

__all__ = ["Hello", "Report", "decode_reports", "encode_reports"]


class Hello(msgspec.Struct, frozen=True):
    """What a group knows of its machine.

    Attributes:
        versions: of Python and of the packages that verdicts and draws depend on.
        memory: bytes of the machine.
        arch: of its GPUs, such as `sm_90`; empty where that is not known.
    """

    versions: dict[str, str]
    memory: int
    arch: str = ""


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is new of one worker.

    Attributes:
        key: of the worker, as `WorkerGroup.start` was given it.
        events: as they came; a line may be cut.
        memory: resident bytes.
        over: whether the worker is gone; nothing follows.
        code: its exit code, where it ended by itself.
        printed: its last lines, once it is gone.
        in_flight: the case that it had announced and not ended, once it is gone.
    """

    key: int
    events: bytes = b""
    memory: int = 0
    over: bool = False
    code: int | None = None
    printed: str = ""
    in_flight: Inflight | None = None


_REPORTS = msgspec.msgpack.Decoder(list[Report])


def encode_reports(reports: list[Report]) -> bytes:
    """The reports of one answer."""
    return msgspec.msgpack.encode(reports)


def decode_reports(data: bytes) -> list[Report]:
    """The reports of one answer; raises msgspec.MsgspecError on damaged data."""
    return _REPORTS.decode(data)
