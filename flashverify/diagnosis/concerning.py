"""Whether a semantics has to do with an output: what it leaves as declared may be within its bound, and break the strict prediction."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.families import canonical
from flashverify.diagnosis.mixing import alternatives
from flashverify.outputs import BACKWARD, FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flashverify.diagnosis.hypothesis import Semantics
    from flashverify.diagnosis.naming import Named
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

    Search = Callable[[Trials, Scene], Named | None]

__all__ = ["about", "concerns", "left_alone"]

_TOGETHER = (FORWARD, ("dk", "dv"))
"""Outputs of one kernel that are not computed from each other."""
_ASKED = 6
"""Failing runs that are looked at."""


def concerns(semantics: Semantics, scene: Scene, names: frozenset[str]) -> bool:
    """Whether a semantics changes one of these outputs on a run, or what it is computed from; also where it has nothing to say of that run."""
    found = alternatives(semantics, scene)
    for alternative in found:
        if alternative.inputs is not None or alternative.steps is not None:
            return True
        if alternative.given is not None and names & set(BACKWARD):
            return True
        for kernels in (FORWARD, BACKWARD) if alternative.finish is not None else ():
            declared = scene.declared(kernels)
            changed = alternative.finish(dict(declared)) if alternative.finish is not None and declared else {}
            if any(changed.get(name) is not declared[name] for name in names & declared.keys()):
                return True
    return not found


def left_alone(scenes: Iterable[Scene], name: str) -> tuple[str, ...]:
    """Of O and the LSE, and of dK and dV, the one that no semantics of this name changes on any of these runs, where it changes the other one."""
    known = [semantics for semantics in SEMANTICS if name and canonical(semantics.name, name)]
    failing = list(islice((scene for scene in scenes if scene.failures), _ASKED))

    def changed(output: str) -> bool:
        runs = [scene for scene in failing if output in scene.right]
        telling = [semantics for semantics in known if output in semantics.outputs]
        return any(not runs or any(concerns(each, scene, frozenset({output})) for scene in runs) for each in telling)

    found: list[str] = []
    for kernel in _TOGETHER if known and failing else ():
        own = [output for output in kernel if changed(output)]
        found += [output for output in kernel if own and output not in own]
    return tuple(found)


def about(search: Search, scene: Scene, output: str) -> Search:
    """A search whose answers have to do with an output of the forward, where that is wrong on `scene`."""

    def asked(trials: Trials, start: Scene) -> Named | None:
        found = search(trials, start)
        told = output in FORWARD and output in scene.failures
        if found is None or not told or concerns(found.claims[0].semantics, scene, frozenset({output})):
            return found
        return None

    return asked
