"""What the wrong elements hold where no place and no condition says which elements these are: the values that a wrong semantics gives them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.families import canonical
from flashverify.diagnosis.mixing import alternatives
from flashverify.diagnosis.related_cases import variants
from flashverify.diagnosis.trials import work
from flashverify.outputs import KERNELS

if TYPE_CHECKING:
    from flashverify.diagnosis.hypothesis import Alternative, Semantics
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["as_if", "as_if_on_related_cases"]

_CASES, _MOST = 5, 7
"""Failing cases whose wrong elements must all be so, and cases that are looked at."""
_SMALL, _LARGEST = 3, 1 << 11
"""The smallest ones among these, and pairs of the largest."""
_ELEMENTS = 30
"""Wrong elements of all of them, at least."""
_FEW = 4
"""Wrong elements of a case that says something."""
_CLEAR = 0.25
"""A semantics explains an element clearly where its own bound is at most so much of the error; so it must half of them."""
_NAMES = 2
"""More semantics than these say nothing."""
_RELATED = 12
"""Cases related to a failing one that are run before."""


def as_if(trials: Trials, output: str, share: float) -> str:
    """That every wrong element of a kernel's outputs is what one semantics makes it, and the others are as declared; empty where there is none.

    Args:
        trials: runs of the subject.
        output: whose failure is asked about.
        share: of the time, after which no further semantics is tried.
    """
    names = next((frozenset(kernel) for kernel in KERNELS if output in kernel), frozenset((output,)))
    scenes = _telling(trials, names)
    scenes = [
        *scenes[:_SMALL],
        *scenes[_SMALL:][::-1][: _MOST - _SMALL],
    ]  # small ones refute most, large ones tell most apart
    if len(scenes) < _CASES or sum(_wrong(scene, names) for scene in scenes) < _ELEMENTS:
        return ""
    left: list[Semantics] = []
    for semantics in SEMANTICS:
        if not trials.within(share):  # one that is left out may be the simpler one
            return ""
        if names & set(semantics.outputs) and all(_explains(semantics, scene, names) for scene in scenes):
            left.append(semantics)
    plain = [s for s in left if not any(each.detail for scene in scenes for each in alternatives(s, scene))]
    left = plain or left  # with numbers of its own on each case a semantics explains more than it says
    distinct = [s for n, s in enumerate(left) if not any(canonical(s.name, other.name) for other in left[:n])]
    if not distinct or len(distinct) > _NAMES:
        return ""
    outputs = sorted({name for scene in scenes for name in scene.failures if name in names})
    said = ", or ".join(semantics.sentence for semantics in distinct)
    return f"Every wrong element of {' and '.join(outputs)} is what it would be if {said}; which elements these are was not found"


def as_if_on_related_cases(trials: Trials, start: Scene, output: str, share: float) -> str:
    """Likewise, after some cases related to that of a failing run were made."""
    for _ in trials.of(islice(variants(trials.subject, start.case), _RELATED), share=share):
        pass
    return as_if(trials, output, share)


def _telling(trials: Trials, names: frozenset[str]) -> list[Scene]:
    """Failing cases with several wrong elements, the small ones first."""
    found = [s for s in trials.scenes.values() if work(s.case) <= _LARGEST and _wrong(s, names) >= _FEW]
    return sorted(found, key=lambda each: work(each.case))


def _wrong(scene: Scene, names: frozenset[str]) -> int:
    return sum(int(wrong.sum()) for name, wrong in scene.failures.items() if name in names)


def _explains(semantics: Semantics, scene: Scene, names: frozenset[str]) -> bool:
    failing = frozenset(scene.failures) & names
    return failing <= set(semantics.outputs) and any(
        failing <= set(each.outputs) and _gives(scene, each, failing) for each in alternatives(semantics, scene)
    )


def _gives(scene: Scene, alternative: Alternative, names: frozenset[str]) -> bool:
    """Whether it gives every wrong element of these outputs, and most of them clearly."""
    found = scene.expect(alternative, names)
    clear = count = 0
    for name in names:
        wrong, got = scene.failures[name], scene.outputs[name]
        if name not in found:
            return False
        values = found[name]
        if values.anything is not None or not bool(values.holds(got, scene.free.get(name))[wrong].all()):
            return False
        error = (got - scene.right[name].value).abs()
        clear += int((values.total < _CLEAR * error)[wrong].sum())
        count += int(wrong.sum())
    return 2 * clear >= count
