"""What to say of a failure with finite values that no wrong semantics explains."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.precision.fitting import Fit, best, small
from flashverify.diagnosis.precision.forms import changes_text, form_text, other_order, wider_form
from flashverify.diagnosis.precision.linear import linear_words
from flashverify.diagnosis.related_cases import grown
from flashverify.judge.record import Diagnosis
from flashverify.outputs import KERNELS, OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["precision_words"]

_SIZES = ((34, 67, 1), (21, 90, 2), (3, 140, 3))
"""Rows and keys that are added for a fit, and what tells the seed; the first ones that fail serve."""
_NEEDED = 2
_DOTS = "tf32"
"""What a model that less precise dots would explain says."""
_SHOWN = {"o": "O", "lse": "LSE", "dq": "dQ", "dk": "dK", "dv": "dV"}


def precision_words(subject: Subject, case: Case, verdict: Verdict, deadline: float) -> Diagnosis | None:
    """Which step is computed with too few bits, and the form that would allow it.

    Models of single steps that are rounded are fitted element by element, on cases with more rows and keys than the failing one. One is
    named only if it predicts the errors of every failing output of a kernel on two such cases.

    Args:
        subject: the kernel under test.
        case: where it fails.
        verdict: the failing verdict.
        deadline: of `time.monotonic()`, after which no further case or form is tried.

    Returns:
        A diagnosis without a name: its sentence says what the errors look like, its `form` what would be within bounds. It has evidence
        where a model predicts the errors. None where nothing is to be said, as of errors that are large or not finite.

    Raises:
        Exception: whatever the subject raises on `case`.
    """
    if (
        verdict.check not in ("accuracy", "config", "relations")
        or case.batch * case.heads_q * case.seq_q * case.seq_k > LARGEST
    ):
        return None
    first = look(subject, case)
    failing = {} if first is None else first.failing()
    if first is None or not failing or not small(first, frozenset(failing)):
        return None
    scenes = _scenes(subject, case, frozenset(failing), deadline)
    if len(scenes) < _NEEDED:
        return None
    words = [text for part in _parts(scenes) if (text := _of(scenes, part, deadline))]
    evidence = f"The errors of {len(scenes)} further cases are predicted element by element." if words else ""
    seen = [first, *scenes]
    order = other_order(seen)
    dots = not words or any(_DOTS in text for text in words)
    form = order[0] if order is not None else wider_form(seen, deadline, dots=dots)
    if order is not None and not words:
        words.append(order[1])
    if form is not None:
        words.append(f"the outputs would be within bounds under {changes_text(form, first.form)}, all else as declared")
    if not words:
        return None
    return Diagnosis(
        sentence=" ".join(text[:1].upper() + text[1:] + "." for text in words),
        evidence=evidence,
        form="" if form is None else form_text(form),
    )


def _scenes(subject: Subject, case: Case, names: frozenset[str], deadline: float) -> list[Scene]:
    """Larger cases of the same kind on which the outputs are about right."""
    found: list[Scene] = []
    for rows, keys, seed in _SIZES:
        for regime in dict.fromkeys((case.values.regime, "normal")):
            other = grown(case, rows, keys, regime=regime, seed=case.values.seed + 100 * seed)
            if other is None or subject.supports.refusal(other) is not None or time.monotonic() > deadline:
                continue
            try:
                scene = look(subject, other)
            except Exception:  # a defect may raise on other cases; those say nothing
                continue
            if scene is not None and small(scene, names & scene.outputs.keys()) and scene.failing():
                found.append(scene)
                break
        if len(found) == _NEEDED:
            break
    return found


def _parts(scenes: list[Scene]) -> Iterator[frozenset[str]]:
    """The failing outputs by the kernel that makes them."""
    failing = set().union(*(scene.failing() for scene in scenes))
    for kernel in KERNELS:
        if part := frozenset(kernel) & failing:
            yield frozenset(part)


def _of(scenes: list[Scene], names: frozenset[str], deadline: float) -> str:
    """What the errors of some outputs look like; empty where no model predicts them."""
    text = _models(best(scenes, names, deadline)) or linear_words(scenes, names)
    shown = " and ".join(_SHOWN.get(name, name) for name in OUTPUTS if name in names)
    return f"errors of {shown} look like {text}" if text else ""


def _models(fits: list[Fit]) -> str:
    if not fits:
        return ""
    first = fits[0]
    how = f"ratio to that model {first.ratio:.2f}, {100 * first.explained:.0f} % of the squared error explained"
    others = "".join(f", or {fit.words}" for fit in fits[1:3])
    return f"{first.words}{others} ({how})"
