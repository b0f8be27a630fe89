"""What a worker does with its tasks: it announces each case on disk, judges it and hands the result up.

It never writes to the store: results go up as events, and the next case begins when the supervisor has stored the last one.
"""

from __future__ import annotations

import os
import time
import traceback
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from flashverify.campaign.ahead import AheadToolkit, since
from flashverify.campaign.plan_name import PlanName
from flashverify.campaign.protocol import (
    CaseJudged,
    Reply,
    Spent,
    Started,
    Task,
    TaskDone,
    WorkerConfig,
    encode,
)
from flashverify.campaign.supervisor.process import ProcessSetup
from flashverify.campaign.worker.aside import Aside
from flashverify.campaign.worker.gpu_memory import give_back, was_short
from flashverify.campaign.worker.inflight import Inflight, InflightFile
from flashverify.campaign.worker.lost_device import leave_a_lost_device
from flashverify.campaign.worker.tasks import carry_out
from flashverify.case.text import format_case
from flashverify.errors import UsageError
from flashverify.judge.verdict import CaseResult, Key, Status, Verdict
from flashverify.subjects.blame import traceback_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.campaign.toolkit import Toolkit
    from flashverify.campaign.worker.mend import Mender
    from flashverify.campaign.worker.traced import TracedKinds
    from flashverify.case.case import Case

__all__ = ["Session", "place_of"]


class Session:
    """What the tasks of one worker share: its subjects, its channel, its note on disk.

    Attributes:
        told: by finding whether its diagnosis accounts for a verdict of a case, as far as it was asked.
        launched: launches that a worker that compiles ahead has rehearsed so far.
        traced: the kinds of each subject that torch traces.
        opened: how many of them were opened since the last result was handed up.
    """

    def __init__(self, config: WorkerConfig, tasks: BinaryIO, toolkit: Toolkit) -> None:
        self.toolkit = toolkit
        self.setup = ProcessSetup(
            config.toolkit,
            config.device,
            config.case_limit,
            numerics=config.numerics,
            memory=config.memory,
            sharers=config.sharers,
        )
        self.device = config.device
        self._events = config.events_fd
        self._tasks = tasks
        self._note = InflightFile(config.inflight)
        self._subjects: dict[str, Any] = {}
        self._described: set[str] = set()
        self.told: dict[Key, dict[tuple[str, str, str], bool | None]] = {}
        self.launched: Callable[[], int] = lambda: 0
        self._before = Spent()
        self._aside: Aside | None = None
        self.traced: dict[str, TracedKinds] = {}
        self.opened = 0

    def emit(self, event: msgspec.Struct) -> None:
        """One event to the supervisor."""
        data = encode(event)
        while data:
            data = data[os.write(self._events, data) :]

    def subject(self, spec: str) -> Any:
        """The loaded subject."""
        if spec not in self._subjects:
            self._subjects[spec] = self.toolkit.load(spec)
        return self._subjects[spec]

    def keep_aside(self, key: Key, mender: Mender) -> None:
        """A search for repairs goes on beside what comes; one that did so before is ended."""
        if self._aside is not None:
            self._aside.close()
        self._aside = Aside(key, mender)

    def _look_aside(self) -> None:
        """Tell what was found beside."""
        if self._aside is None:
            return
        news, over = self._aside.look()
        if over:
            self._aside = None
        if news is not None:
            self.emit(news)

    def announce(self, spec: str, text: str) -> None:
        """A case begins."""
        self._look_aside()
        self._note.announce(Inflight(spec, self._name(spec), text))
        self.emit(Started())

    def clear(self) -> None:
        """No case runs."""
        self._note.clear()

    def _name(self, spec: str) -> str:
        return str(getattr(self.subject(spec), "name", spec))

    def _spent(self) -> Spent:
        return self.toolkit.spent() if self.device == "cuda" and isinstance(self.toolkit, AheadToolkit) else Spent()

    def judge(self, spec: str, case: Case, plan: str) -> CaseResult:
        """Announce and judge a case. An exception out of the harness is an `error` verdict, never a pass or a fail."""
        subject, text = self.subject(spec), format_case(case)
        self.announce(spec, text)
        self._before, begun = self._spent(), time.perf_counter()
        result = self._judged(spec, subject, case, plan)
        if self.device == "cuda":
            if was_short(result):
                give_back(None)
                result = self._judged(spec, subject, case, plan)
            if any(v.check in ("exception", "harness") for v in result.verdicts):
                leave_a_lost_device()
            give_back(self.setup.sharers)
        self.clear()
        if not result.seconds:
            result = msgspec.structs.replace(result, seconds=round(time.perf_counter() - begun, 6))
        return result

    def _judged(self, spec: str, subject: Any, case: Case, plan: str) -> CaseResult:
        try:
            result: CaseResult = self.toolkit.judge(subject, case, plan)
        except Exception as error:
            if isinstance(error, UsageError) and PlanName.parse(plan).check:
                raise  # the check that was asked for does not exist
            message = f"the harness failed: {type(error).__name__}: {error} ({place_of(error)})"
            verdict = Verdict(
                check="harness",
                status=Status.ERROR,
                error="exception",
                message=message[:2000],
                traceback=traceback_text(error),
            )
            result = CaseResult(
                case=format_case(case), subject=self._name(spec), evidence=self.device, verdicts=(verdict,)
            )
        return result

    def report(self, spec: str, result: CaseResult) -> bool:
        """Hand a result up and wait until it is stored; True where the task should stop."""
        form = ""
        if spec not in self._described:
            self._described.add(spec)
            form = self._form(spec)
        spent = msgspec.structs.replace(since(self._before, self._spent()), opened=self.opened)
        self.opened = 0
        self.emit(CaseJudged(spec, result, form, spent))
        line = self._tasks.readline()
        return not line or msgspec.json.decode(line, type=Reply).stop

    def _form(self, spec: str) -> str:
        try:
            return self.toolkit.form(self.subject(spec))
        except Exception as error:  # a description may fail; the verdicts do not depend on it
            return f"unknown ({type(error).__name__}: {error})"

    def run(self, task: Task) -> None:
        """Carry out one task."""
        carry_out(self, task)
        self._look_aside()
        self.emit(TaskDone())


def place_of(error: BaseException) -> str:
    """File and line that raised an exception; empty where they are not known."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
