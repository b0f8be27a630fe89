"""Two mistakes in one kernel: each of its outputs is wrong in a way that has a name of its own, and no name is true of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flashverify.diagnosis.arbitration import doubted
from flashverify.diagnosis.families import canonical
from flashverify.diagnosis.naming import named
from flashverify.diagnosis.narrowing import Narrowed
from flashverify.outputs import KERNELS

if TYPE_CHECKING:
    from flashverify.diagnosis.naming import Named
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["Apart", "apart"]


class Apart(NamedTuple):
    """What explains one output of a kernel, and what explains others.

    Attributes:
        answer: the name for the output that was asked about.
        scene: the run that shows it, as if the others were right.
        others: by name of an output that is wrong in another way, what explains that.
    """

    answer: Named
    scene: Scene
    others: dict[str, Named]


def apart(trials: Trials, start: Scene, output: str, share: float) -> Apart | None:
    """A name for each wrong output of the kernel that makes `output`; None where one of them has none, or where one name stands for two.

    Each has to be sure by itself: without conditions, rivals, and cases that are right for a reason that was not found.

    Args:
        trials: runs of the subject, for whose failures no single name was found.
        start: a failing one.
        output: whose failure is asked about.
        share: of the time that is left.
    """
    kernel = next((each for each in KERNELS if output in each), ())
    wrong = sorted((name for name in kernel if name in start.failures), key=lambda name: name != output)
    if len(wrong) < 2 or output not in wrong:
        return None
    found: dict[str, tuple[Named, Scene]] = {}
    for number, name in enumerate(wrong):
        alone = Narrowed(trials.anew(share / (len(wrong) - number)), (name,))
        scene = alone.of_kernel(start)
        answer = named(alone, scene)
        if answer is None or doubted(answer):
            return None
        if any(canonical(_name(answer), _name(other)) for other, _ in found.values()):
            return None
        found[name] = answer, scene
    answer, scene = found.pop(output)
    return Apart(answer, scene, {name: each for name, (each, _) in found.items()})


def _name(answer: Named) -> str:
    return answer.claims[0].semantics.name
