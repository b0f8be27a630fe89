"""What crosses a process border: tasks go down to a worker, events come up; both are one JSON object a line."""

from __future__ import annotations

import msgspec

from flashverify.campaign.protocol.events import (
    Attributed,
    CaseJudged,
    CasesListed,
    Compared,
    Event,
    Improved,
    Judged,
    Mended,
    Minimal,
    Prepared,
    PutOff,
    Ready,
    Reconsidered,
    Separated,
    Shown,
    Spent,
    Started,
    TaskDone,
    WorkerFailed,
    decode_event,
)
from flashverify.campaign.protocol.lines import EventLines
from flashverify.campaign.protocol.tasks import (
    Answered,
    Attribute,
    Batch,
    CaseList,
    Chunk,
    Compare,
    Judge,
    Mend,
    Minimise,
    Prepare,
    Profile,
    Reconsider,
    Reply,
    Separate,
    Task,
    WorkerConfig,
    decode_task,
)

__all__ = [
    "Answered",
    "Attribute",
    "Attributed",
    "Batch",
    "CaseJudged",
    "CaseList",
    "CasesListed",
    "Chunk",
    "Compare",
    "Compared",
    "Event",
    "EventLines",
    "Improved",
    "Judge",
    "Judged",
    "Mend",
    "Mended",
    "Minimal",
    "Minimise",
    "Prepare",
    "Prepared",
    "Profile",
    "PutOff",
    "Ready",
    "Reconsider",
    "Reconsidered",
    "Reply",
    "Separate",
    "Separated",
    "Shown",
    "Spent",
    "Started",
    "Task",
    "TaskDone",
    "WorkerConfig",
    "WorkerFailed",
    "decode_event",
    "decode_task",
    "encode",
]


def encode(message: msgspec.Struct) -> bytes:
    """One line."""
    return msgspec.json.encode(message) + b"\n"
