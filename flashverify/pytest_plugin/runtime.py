"""The process that judges for a session of pytest, or for one worker of xdist: started by the first marked test, kept until the end."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from flashverify.baseline.reading import baseline_for
from flashverify.campaign import environment, toolkit
from flashverify.campaign.commands.settings import load_settings
from flashverify.campaign.gpus import visible_gpus
from flashverify.campaign.plan_name import PlanName
from flashverify.campaign.protocol import CaseList, Judge
from flashverify.campaign.supervisor.probe import Probe
from flashverify.campaign.supervisor.process import ProcessSetup
from flashverify.campaign.supervisor.schedule import batch_seed
from flashverify.child_process import VISIBLE, child_environment
from flashverify.errors import FlashverifyError
from flashverify.judge.verdict import CaseResult
from flashverify.pytest_plugin.gpus import gpu_of
from flashverify.pytest_plugin.groups import SHARDS
from flashverify.pytest_plugin.request import whole_number
from flashverify.pytest_plugin.seen import Seen
from flashverify.pytest_plugin.stash import folder_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from flashverify.judge.verdict import Key
    from flashverify.pytest_plugin.groups import Group

__all__ = ["Runtime"]

_Answer = TypeVar("_Answer")
_CASE_LIMIT = {"cpu": 60.0, "cuda": 120.0}


class Runtime:
    """What the marked tests of this process share.

    Args:
        config: of pytest.

    Attributes:
        device: `cpu` or `cuda`, where subjects run.
        numerics: of interpreted kernels.
        profile: how large drawn cases are where neither a marker nor an option says it; empty is that of the device.
        seed: of the drawn cases.
        worker: of xdist; empty without it.
        variables: of the environment of the processes that judge, beside those of this process.
        seen: what was judged so far.
        baseline: the failures that may stand; None where there are none.
        explains: whether failing cases are made smaller and diagnosed.

    Raises:
        UsageError: an option or a setting is not accepted.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.root = config.rootpath
        settings = load_settings({}, os.environ, self.root)
        self.device = environment.resolve_device(settings.device)
        self.numerics = environment.resolve_numerics(settings.numerics, self.device)
        self.profile = settings.profile or ""
        given = config.getoption("--flashverify-seed")
        self.seed = settings.seed or 0 if given is None else whole_number(given, "--flashverify-seed", least=0)
        self.worker = str(getattr(config, "workerinput", {}).get("workerid", ""))
        self.gpus = visible_gpus(os.environ) if self.device == "cuda" else ()
        self.gpu = gpu_of(self.worker, self.gpus)
        self.variables = self._variables()
        self.baseline = baseline_for(config.getoption("--flashverify-baseline"), self.root)
        self.explains = not config.getoption("--flashverify-no-explain")
        self.folder = folder_of(config)
        self.scratch = Path(tempfile.mkdtemp(dir=self.folder))
        self.seen = Seen()
        self._probe: Probe | None = None
        self._broken: dict[str, FlashverifyError] = {}
        self._listed: dict[tuple[object, ...], tuple[str, ...]] = {}

    def _variables(self) -> dict[str, str]:
        """The root folder of the tests ends the import path, and a worker sees its GPU alone."""
        path = child_environment(interpret=self.device == "cpu")["PYTHONPATH"]
        found = {"PYTHONPATH": os.pathsep.join((path, str(self.root)))}
        return found | ({VISIBLE: self.gpu} if self.gpu else {})

    @property
    def case_limit(self) -> float:
        """Seconds that one case may take."""
        return _CASE_LIMIT[self.device]

    def _process(self) -> Probe:
        if self._probe is None:
            setup = ProcessSetup(
                toolkit.BUNDLED, self.device, self.case_limit, numerics=self.numerics, environment=self.variables
            )
            self._probe = Probe(setup)
        return self._probe

    def cases(self, group: Group) -> tuple[str, ...]:
        """Text forms of the cases of a group, fewer where the subject has no more.

        Raises:
            FlashverifyError: the subject cannot be loaded, or refuses every draw.
        """
        if group.listed:
            return (group.listed,)
        name = group.name
        profile = group.asked.profile or self.profile
        key = (name.load, profile, group.drawn, group.count)
        if key not in self._listed:
            task = CaseList(name.load)
            if group.drawn is not None:
                seed = batch_seed(self.seed, name.shown, group.drawn)
                task = CaseList(name.load, examples=group.count, seed=seed, profile=profile)
            self._listed[key] = self._asked(name.load, lambda: self._process().cases(task))
        found = self._listed[key]
        return found if group.shard is None else found[group.shard :: SHARDS]

    def judge(self, group: Group, case: str) -> CaseResult:
        """The verdicts on a case: what a search asks of drawn cases, everything of others; or the checks that the marker names.

        Raises:
            FlashverifyError: the subject cannot be loaded, or the harness failed.
        """
        plans = [f"only:{check}" for check in group.asked.checks] or ["run" if group.drawn is None else "fuzz"]
        spec = group.name.load
        results = [self._verdicts(spec, case, plan) for plan in plans]
        first = results[0]
        return CaseResult(
            case=first.case,
            subject=first.subject,
            evidence=first.evidence,
            warnings=first.warnings,
            verdicts=tuple(verdict for result in results for verdict in result.verdicts),
            stats=tuple(dict.fromkeys(stats for result in results for stats in result.stats)),
            seconds=sum(result.seconds for result in results),
        )

    def cause_of(self, group: Group, case: str, key: Key) -> str:
        """The name of what explains a failure of a case; empty where nothing does.

        Raises:
            FlashverifyError: the harness failed.
        """
        task = Judge(group.name.load, case, str(PlanName.of_check(key.check)), diagnose=key)
        found = self._asked(group.name.load, lambda: self._process().judge(task)).diagnosis
        return found.name if found is not None else ""

    def _verdicts(self, spec: str, case: str, plan: str) -> CaseResult:
        return self._asked(spec, lambda: self._process().judge(Judge(spec, case, plan)).result)

    def _asked(self, spec: str, ask: Callable[[], _Answer]) -> _Answer:
        """An answer of the process. What ends it ends it for every test of the subject, which need not start it again to see that."""
        if spec in self._broken:
            raise self._broken[spec]
        try:
            return ask()
        except FlashverifyError as error:
            self._broken[spec] = error
            raise

    def hand_over(self) -> None:
        """Leave what was seen where the process that started this one finds it."""
        self.seen.write(self.folder, self.worker or "main")

    def close(self) -> None:
        """End the process."""
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.__exit__(None, None, None)
