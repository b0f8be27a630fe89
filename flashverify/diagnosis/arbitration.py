"""A name and what is read off the kernel, held against each other on fresh cases: the one that explains more is said."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from flashverify.diagnosis.attempting import attempted
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.narrowing import OTHER_OUTPUTS, Narrowed, kernel_alone
from flashverify.diagnosis.readings import Readings, readings
from flashverify.outputs import BACKWARD

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.diagnosis.naming import Named
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["Hearing", "Ruling", "doubted", "unlike"]

_THIN = 4
"""Cases explained clearly, below which a name rests on few."""
_OTHERWISE = 1 / 3
"""Of fresh failing cases, those that are wrong in another way, above which a name without conditions is not said."""


class Ruling(NamedTuple):
    """What is said.

    Attributes:
        answer: the name; None where fresh cases refute it.
        read: what was read, to be said beside the name; before it where `leads`. Empty where nothing is to be said of it.
        leads: whether the reading is the title, and the name a line.
        fresh: failing cases, none of which the name had seen, that it explains.
    """

    answer: Named | None
    read: Readings = Readings()
    leads: bool = False
    fresh: int = 0


class Hearing:
    """Asks for readings where a name leaves a doubt, once for each start.

    Args:
        trials: runs of the subject, with time that is kept for readings.
        output: whose failure is asked about.
    """

    def __init__(self, trials: Trials, output: str) -> None:
        self._trials, self._output = trials, output
        self._read: dict[Case, Readings] = {}

    def readings(self, start: Scene) -> Readings:
        """What is read off the kernel where `start` fails."""
        if start.case not in self._read:
            if not self._trials.left():
                return Readings()
            self._read[start.case] = attempted(
                "reading", lambda: readings(self._trials, start, self._output), Readings()
            )
        return self._read[start.case]

    def ruling(self, start: Scene, answer: Named) -> Ruling:
        """Whether a name that explains `start` is said, and whether what is read is said before it or beside it.

        A name that holds always, on enough cases, and has no rival is said without more. Any other one is held against the cases that
        the readings run, which it never saw: it goes where they are wrong in another way, and gives way to a reading that says
        exactly what is wrong where it does not. Of two that say it equally well the one without conditions and rivals leads; a reading
        leads only if right cases were asked about it too, and not before a name about gradients alone.
        """
        if not doubted(answer):
            return Ruling(answer)
        known = set(self._trials.scenes)
        self._trials.release()
        read = self.readings(start)
        fresh = [scene for case, scene in self._trials.scenes.items() if case not in known]
        told = _answers(answer, fresh)
        if _refuted(answer, told) and (alone := self._of_one_kernel(start, answer, fresh)):
            told = alone
            answer.evidence += OTHER_OUTPUTS
        explained, otherwise, right = _explained(told), told.count(Answer.OTHERWISE), told.count(Answer.RIGHT)
        exact = read.tested and not read.part and _about(read, self._output)
        if _refuted(answer, told) or (exact and (otherwise or (read.both and (right or answer.open)))):
            return Ruling(None, read)
        if not exact:
            return Ruling(answer, fresh=explained)
        plain = not answer.conditions and not unlike(answer)
        return Ruling(answer, read, read.both and not plain and not _of_gradients(answer), explained)

    def _of_one_kernel(self, start: Scene, answer: Named, fresh: list[Scene]) -> list[Answer]:
        """What fresh cases say of the outputs of the kernel that is asked about; empty where they refute the name there too.

        A second defect makes the outputs of other kernels wrong in another way.
        """
        kernel = kernel_alone(self._trials, start, self._output)
        if kernel is None:
            return []
        alone = Narrowed(self._trials, kernel)
        told = _answers(answer, list(map(alone.of_kernel, fresh)), frozenset(kernel))
        return [] if _refuted(answer, told) else told


def _explained(told: list[Answer]) -> int:
    return told.count(Answer.CLEAR) + told.count(Answer.EXPLAINED)


def _refuted(answer: Named, told: list[Answer]) -> bool:
    """Whether more cases are wrong in another way than a name may leave."""
    otherwise = told.count(Answer.OTHERWISE)
    return otherwise > (0.0 if answer.conditions else _OTHERWISE * (_explained(told) + otherwise))


def _about(read: Readings, output: str) -> bool:
    """Whether the first sentence is about what fails: wrong gradients may follow from a wrong LSE."""
    first = read.sentences[0].lower()
    gradients = {name for name in BACKWARD if re.search(rf"\b{name}\b", first)}
    return not gradients or output in gradients


def _of_gradients(answer: Named) -> bool:
    """Whether it is one name, about gradients alone: what is read of masks says less of their sums, and not when they are wrong."""
    scope = answer.claims[0].scope
    return bool(scope) and scope <= set(BACKWARD) and not unlike(answer)


def doubted(answer: Named) -> bool:
    """Whether a name rests on few cases, has conditions or a rival, or leaves cases that are right for a reason that was not found."""
    return answer.clear < _THIN or answer.open or bool(answer.conditions) or unlike(answer)


def unlike(answer: Named) -> bool:
    """Whether a semantics that is consistent with every case tried as well is about another part than the first one."""
    first, *others = (claim.semantics.name.split("-")[0] for claim in answer.claims)
    return any(other != first for other in others)


def _answers(answer: Named, scenes: list[Scene], outputs: frozenset[str] | None = None) -> list[Answer]:
    first = answer.claims[0]
    scope = first.scope if outputs is None else first.scope & outputs
    claim = Claim(first.semantics, answer.conditions, scope, ways=first.ways)
    return [claim.answer(scene) for scene in scenes]
