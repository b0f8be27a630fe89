"""Runs of a subject of which only some outputs count: a second defect makes the others wrong in another way."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flashverify.diagnosis.trials import Trials
from flashverify.outputs import KERNELS

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene

__all__ = ["OTHER_OUTPUTS", "Narrowed", "kernel_alone"]

OTHER_OUTPUTS = "; other outputs are wrong in another way"
"""Added to the evidence of what explains one kernel alone."""


def kernel_alone(trials: Trials, scene: Scene, output: str) -> tuple[str, ...] | None:
    """The outputs of the kernel whose failures are to be explained by themselves; None where no other kernel fails on any case tried.

    Args:
        trials: runs of the subject.
        scene: a failing one.
        output: whose failure is asked about; where its kernel does not fail on `scene`, the first one that does stands for it.
    """
    ranked = sorted(KERNELS, key=lambda kernel: output not in kernel)
    kernel = next((each for each in ranked if scene.failures.keys() & set(each)), None)
    if kernel is None or all(other.failures.keys() <= set(kernel) for other in trials.scenes.values()):
        return None
    return kernel


class Narrowed(Trials):
    """The same trials, within the same time, as if the outputs that are not in `outputs` were right.

    Args:
        trials: whose runs they are.
        outputs: that count.
    """

    def __init__(self, trials: Trials, outputs: tuple[str, ...]) -> None:
        self._whole = trials
        self._outputs = frozenset(outputs)
        self.subject = trials.subject
        self.scenes = {case: self.of_kernel(scene) for case, scene in trials.scenes.items()}

    def of_kernel(self, scene: Scene) -> Scene:
        """The run with the failures that count."""
        failing = {name: wrong for name, wrong in scene.failures.items() if name in self._outputs}
        return dataclasses.replace(scene, memo={**scene.memo, "failing": failing})

    def left(self, share: float = 1.0) -> bool:
        """As `Trials.left`, of the time of all trials."""
        return self._whole.left(share)

    def within(self, share: float = 1.0) -> bool:
        """As `Trials.within`, of the time of all trials."""
        return self._whole.within(share)

    def hindrance(self, case: Case, share: float) -> str:
        """As `Trials.hindrance`, of the time of all trials."""
        return self._whole.hindrance(case, share)

    def release(self, share: float = 1.0) -> None:
        """As `Trials.release`."""
        self._whole.release(share)

    def keep(self, scene: Scene) -> None:
        """Adds a run that was made elsewhere."""
        self._whole.keep(scene)
        self.scenes[scene.case] = self.of_kernel(scene)

    def known(self, case: Case) -> bool:
        """Whether the case was tried."""
        return self._whole.known(case)

    def scene(self, case: Case) -> Scene | None:
        """As `Trials.scene`, with the failures that count."""
        if case not in self.scenes:
            found = self._whole.scene(case)
            if found is None:
                return None
            self.scenes[case] = self.of_kernel(found)
        return self.scenes[case]
