"""Which wrong semantics explains a failure: hypotheses are held against the failing case, then against others like it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.expected import explains
from flashverify.diagnosis.observation import LARGEST, Scene
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.padding_experiment import padding_reaches
from flashverify.diagnosis.place import first_line, place_of
from flashverify.diagnosis.related_cases import telling, variants
from flashverify.judge.record import Diagnosis
from flashverify.outputs import BACKWARD, FORWARD, KERNELS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.hypothesis import Alternative, Semantics
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["SECONDS", "diagnose", "first_scene", "fit_of", "unwritten"]

SECONDS = 10.0
_NEEDED = 2
"""Further cases that a hypothesis must explain, each of them clearly."""
_FATAL = ("crash", "hang", "exception")
"""Checks whose failures leave no outputs to explain."""
_TRIED = 8
"""Further cases that it must at least not contradict; one of them has more rows and keys than any tile."""
_NONE = "no known wrong semantics explains it"
_KERNELS = tuple(map(frozenset, KERNELS))
"""Outputs that are made together, for which a semantics must be wrong in one way."""
_SCOPES = (
    (frozenset({"o", "lse"}), "in the forward"),
    (frozenset({"o"}), "in O, not in the LSE"),
    (frozenset({"lse"}), "in the LSE, not in O"),
    (frozenset({"dq"}), "in dQ alone"),
    (frozenset({"dk", "dv"}), "in dK and dV alone"),
    (frozenset({"dk"}), "in dK alone"),
    (frozenset({"dv"}), "in dV alone"),
)


@dataclass(slots=True)
class _Fit:
    """A hypothesis that explains the failing case, and how often it was put to the test since."""

    semantics: Semantics
    detail: str
    scope: frozenset[str]
    clear: int = 0


def diagnose(subject: Subject, case: Case, verdict: Verdict, *, seconds: float = SECONDS) -> Diagnosis:
    """Names the wrong semantics that explains every output of `subject` on `case`, and says where it shows.

    A semantics is named only if the subject's outputs lie within the bounds that hold under it on `case` and on at least two
    further cases, on each of which it accounts for an error that is large beside those bounds, and it contradicts no case tried.

    Args:
        subject: the kernel under test.
        case: where it fails, the smaller the better.
        verdict: the failing verdict.
        seconds: after which no further case is tried.

    Returns:
        The diagnosis; its `name` is empty where no semantics fits or too few cases could be tried.

    Raises:
        Exception: whatever the subject raises on `case`.
    """
    if verdict.check in _FATAL:
        return Diagnosis()
    deadline = time.monotonic() + seconds
    found = first_scene(subject, case, verdict)
    if found is None:
        return Diagnosis()
    scene, failing = found
    place = place_of(scene, failing, verdict.output)
    if line := first_line(subject, scene, verdict):
        place = f"{place}; {line}"
    if sentence := unwritten(scene, failing):
        return Diagnosis("not-written", sentence, place=place)
    if scene.case.batch * scene.case.heads_q * scene.case.seq_q * scene.case.seq_k > LARGEST:
        return Diagnosis(sentence="the case is too large for hypotheses", place=place)
    if scene.case.storage.padding in ("nan", "inf", "-inf"):
        plain = look(subject, replace(scene.case, storage=replace(scene.case.storage, padding="zero")))
        if plain is not None and (still := plain.failing()):
            scene, failing = plain, still
        elif reached := padding_reaches(subject, scene.case):
            return Diagnosis(reached[0], _sentence(reached[1]), place=place)
    fits = []
    for semantics in SEMANTICS:
        if (fit := fit_of(semantics, scene, failing)) is not None:
            fits.append(fit)
        if time.monotonic() > deadline:
            return Diagnosis(sentence=_sentence("not every known wrong semantics could be tried in time"), place=place)
    fits = _tested(subject, scene.case, fits, deadline)
    if not fits:
        return Diagnosis(sentence=_sentence(_NONE), place=place)
    names = tuple(fit.semantics.name for fit in fits)
    sentence = _in_words(fits[0], scene)
    if len(fits) > 1:
        others = " or ".join(_plain(fit) for fit in fits[1:])
        sentence = f"{sentence} Every case tried is consistent with this as well: {others}."
    return Diagnosis(names[0], sentence, names[1:], place)


def first_scene(subject: Subject, case: Case, verdict: Verdict) -> tuple[Scene, dict[str, Tensor]] | None:
    """The run of `case` and what fails; of the check of padding, or where nothing fails, with the paddings that show most."""
    paddings = [case.storage.padding]
    if verdict.check in ("padding", "memory"):
        paddings += ["nan", "max", "dirt"]
    for padding in dict.fromkeys(paddings):
        scene = look(subject, replace(case, storage=replace(case.storage, padding=padding)))
        if scene is not None and (failing := scene.failing()):
            return scene, failing
    return None


def unwritten(scene: Scene, failing: dict[str, Tensor]) -> str:
    """That every failing element is one that nobody wrote; empty where not."""
    masks = scene.execution.unwritten
    if all(name in masks and bool((masks[name].cpu() | ~wrong).all()) for name, wrong in failing.items()):
        return _sentence(f"elements of {', '.join(failing)} are never written")
    return ""


def fit_of(semantics: Semantics, scene: Scene, failing: dict[str, Tensor]) -> _Fit | None:
    """Whether `semantics` expects what the subject returned, wherever that is not what is declared."""
    names = frozenset(failing)
    if not names <= set(semantics.outputs):
        return None
    found = _agreeing(semantics, scene, names)
    return None if found is None else _Fit(semantics, next(a.detail for a in found.values()), names)


def _agreeing(semantics: Semantics, scene: Scene, names: frozenset[str]) -> dict[frozenset[str], Alternative] | None:
    """For each kernel of the outputs `names` an alternative that they agree with; None where there is none for one."""
    asked = [frozenset(part & names) for part in _KERNELS if part & names]
    found: dict[frozenset[str], Alternative] = {}
    for alternative in semantics.build(scene):
        for part in asked:
            if part not in found and scene.agrees(alternative, part):
                found[part] = alternative
        if len(found) == len(asked):
            return found
    return None


def _tested(subject: Subject, case: Case, fits: list[_Fit], deadline: float) -> list[_Fit]:
    """Those hypotheses that explain further cases too."""
    tried = 0
    for scene in _scenes(subject, variants(subject, case)) if fits else ():
        tried += 1
        failing = scene.failing()
        fits = [fit for fit in fits if _survives(fit, scene, failing)]
        settled = len(fits) == 1 and fits[0].clear >= _NEEDED and tried >= _TRIED
        if not fits or settled or time.monotonic() > deadline:
            break
    fits = [fit for fit in fits if fit.clear >= _NEEDED and tried >= _TRIED]
    for scene in _scenes(subject, telling(subject, case)) if len(fits) > 1 else ():
        failing = scene.failing()
        # one that has no say here is not contradicted
        fits = [fit for fit in fits if _silent(fit, scene) or _survives(fit, scene, failing)]
        if len(fits) < 2 or time.monotonic() > deadline:
            break
    return fits


def _silent(fit: _Fit, scene: Scene) -> bool:
    return next(fit.semantics.build(scene), None) is None


def _scenes(subject: Subject, cases: Iterator[Case]) -> Iterator[Scene]:
    for variant in cases:
        if variant.batch * variant.heads_q * variant.seq_q * variant.seq_k > LARGEST:
            continue
        try:
            scene = look(subject, variant)
        except Exception:  # a defect may raise on other cases; those say nothing
            continue
        if scene is not None:
            yield scene


def _survives(fit: _Fit, scene: Scene, failing: dict[str, Tensor]) -> bool:
    """Whether the hypothesis agrees with a further case; counts those that it explains clearly."""
    names = frozenset(failing) | {name for name in fit.scope if name in scene.outputs}
    if not names <= set(fit.semantics.outputs):
        return False
    found = _agreeing(fit.semantics, scene, names)
    if found is None:
        # where it has no say, as without a part of the mask or with too few keys, it is right to be right
        return not failing and next(fit.semantics.build(scene), None) is None
    for part, alternative in found.items():
        wrong = {name: failing[name] for name in part if name in failing}
        if wrong:
            expected = scene.expect(alternative, part)
            if any(explains(expected[n], scene.right[n], scene.outputs[n], w, clearly=True) for n, w in wrong.items()):
                fit.clear += 1
                break
    fit.scope |= frozenset(failing)
    return True


def _plain(fit: _Fit) -> str:
    return fit.semantics.sentence + (f" ({fit.detail})" if fit.detail else "")


def _in_words(fit: _Fit, scene: Scene) -> str:
    """The hypothesis, its detail, and in which part of the computation."""
    scope = next((words for names, words in _SCOPES if names == fit.scope), "")
    gradients = any(name in scene.outputs for name in BACKWARD)
    if fit.scope <= set(FORWARD) and "o" in fit.scope and gradients:
        scope = "in the forward alone"
    elif fit.scope and not fit.scope & set(FORWARD) and not scope:
        scope = "in the backward alone"
    elif not gradients and fit.scope == {"o", "lse"}:
        scope = ""
    return _sentence(_plain(fit) + (f", {scope}" if scope else ""))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
