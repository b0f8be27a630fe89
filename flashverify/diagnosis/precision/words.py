"""What to say of a failure with finite values that no wrong semantics explains."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from flashverify.diagnosis.looks import LOOK_LIKE
from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.precision.exponential import exponential_words
from flashverify.diagnosis.precision.factors import factor_words
from flashverify.diagnosis.precision.fitting import best, small, told
from flashverify.diagnosis.precision.forms import (
    broken_prediction,
    changes_text,
    declaring,
    form_text,
    wider_form,
)
from flashverify.diagnosis.precision.logarithm import logarithm_words
from flashverify.diagnosis.related_cases import grown
from flashverify.judge.record import Diagnosis
from flashverify.outputs import KERNELS, OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.diagnosis.clock import End
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.precision.fitting import Fit
    from flashverify.diagnosis.precision.forms import Change
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["precision_words"]

_SIZES = (
    (34, 67, 1),
    (21, 90, 2),
    (3, 140, 3),
    (45, 2, 4),
    (60, 0, 5),
    (38, 5, 6),
    (80, 0, 7),
    (1, 0, 8),
    (90, 0, 9),
    (2, 1, 10),
)
"""Rows and keys that are added for a fit, and what tells the seed; the first ones that fail serve."""
_SCALED, _SCALE = 2, 0.7493
"""Of the case that has another scale, and that up to a power of two: the usual roundings make other numbers of it."""
_PLAIN = (30, 80, 11)
"""The same of a case of plain values, which no model may contradict."""
_NEEDED, _MOST = 2, 4
_HEADS, _FEW = 4, 8
"""Times the heads of the failing case, where a failing output has fewer elements than that."""
_SHOWN = {"o": "O", "lse": "LSE", "dq": "dQ", "dk": "dK", "dv": "dV"}


class _Said(NamedTuple):
    """What the errors of some outputs look like, and the changes of a form that declare it."""

    text: str
    changes: tuple[Change, ...]


def precision_words(subject: Subject, case: Case, verdict: Verdict, deadline: End) -> Diagnosis | None:
    """Which step is computed with too few bits, and the form that would allow it.

    Models of single steps that are rounded are fitted element by element, on cases with more rows and keys than the failing one. One is
    named only if it predicts the errors of every failing output of a kernel on two such cases.

    Args:
        subject: the kernel under test.
        case: where it fails.
        verdict: the failing verdict.
        deadline: after which no further case or form is tried.

    Returns:
        A diagnosis without a name: its sentence says what the errors look like, its `form` what would be within bounds. It has evidence
        where a model predicts the errors. None where nothing is to be said, as of errors that are large or not finite.

    Raises:
        Exception: whatever the subject raises on `case`.
    """
    if (
        verdict.check not in ("accuracy", "config", "relations")
        or case.batch * case.heads_q * case.seq_q * case.seq_k > LARGEST
        or deadline.over
    ):
        return None
    first = look(subject, case)
    if first is None or not first.failures or not _finite(first):
        return None
    scenes, others = _scenes(subject, first, deadline)
    if len(scenes) < _NEEDED:
        return None
    parts = list(_parts(scenes))
    said_of = {part: found for part in parts if (found := _of(scenes, (first, *others), part, deadline)) is not None}
    if said_of and verdict.output in first.failures and not any(verdict.output in part for part in said_of):
        return None  # what other kernels round is another failure
    said = list(said_of.values())
    words, form, seen = [each.text for each in said], None, [first, *scenes]
    broken = None if said else broken_prediction(seen)
    if broken is not None:
        words.append(broken[1])
        form = next(iter(broken[0]), None)
    elif len(said) == len(parts):
        form = wider_form(seen, (change for each in said for change in each.changes), deadline)
    if form is not None:
        words.append(f"the outputs would be within bounds under {changes_text(form, first.form)}, all else as declared")
    if not words:
        return None
    evidence = f"The errors of {len(scenes)} further cases are predicted element by element." if said else ""
    return Diagnosis(
        sentence=" ".join(text[:1].upper() + text[1:] + "." for text in words),
        evidence=evidence,
        form="" if form is None else form_text(form),
    )


def _finite(scene: Scene) -> bool:
    """Whether a wrong element is a number."""
    return any(bool(torch.isfinite(scene.outputs[name][wrong]).any()) for name, wrong in scene.failures.items())


def _scenes(subject: Subject, first: Scene, deadline: End) -> tuple[list[Scene], list[Scene]]:
    """Larger cases of the same kind on which outputs are wrong; and further ones, right and wrong, of plain values."""
    failing: list[Scene] = []
    others: list[Scene] = []
    case, heads = first.case, {}
    groups = {"heads_q": 2 * case.heads_q}  # tells sums over a group from sums over rows
    if min(wrong.numel() for wrong in first.failures.values()) < _FEW:
        heads = {"heads_q": _HEADS * case.heads_q, "heads_kv": _HEADS * case.heads_kv}

    def tried(size: tuple[int, int, int], regime: str, **axes: Any) -> Scene | None:
        rows, keys, seed = size
        several: tuple[dict[str, Any], ...] = (heads, {}) if heads else (groups, {}) if seed % 2 == 0 else ({},)
        if seed == _SCALED:
            several = (
                {**several[0], "scale": _SCALE * 2.0 ** round(math.log2(abs(case.softmax_scale) or 1))},
                *several,
            )
        for more in several:
            other = grown(case, rows, keys, regime=regime, seed=case.values.seed + 100 * seed, **axes, **more)
            if other is None or subject.supports.refusal(other) is not None or deadline.over:
                continue
            try:
                return look(subject, other)
            except Exception:  # a defect may raise on other cases; those say nothing
                return None
        return None

    for number, size in enumerate(_SIZES):
        regimes = (case.values.regime, "normal")
        for regime in dict.fromkeys(regimes if number % 2 == 0 else reversed(regimes)):
            scene = tried(size, regime)
            if scene is not None and scene.failures:
                failing.append(scene)
                break
            others += [scene] if scene is not None and regime == "normal" and len(others) < _NEEDED else []
        names = frozenset[str]().union(*(scene.failures for scene in failing))
        if len(failing) == _MOST or (len(failing) >= _NEEDED and told(failing, names)):
            break
    exact = tried(_PLAIN, "normal", **({"precision": "ieee"} if case.dtype == "fp32" else {}))
    return failing, others + ([exact] if exact is not None else [])


def _parts(scenes: list[Scene]) -> Iterator[frozenset[str]]:
    """The failing outputs by the kernel that makes them."""
    failing = set().union(*(scene.failures for scene in scenes))
    for kernel in KERNELS:
        if part := frozenset(kernel) & failing:
            yield frozenset(part)


def _of(scenes: list[Scene], others: tuple[Scene, ...], names: frozenset[str], deadline: End) -> _Said | None:
    """What the errors of some outputs look like; None where no model predicts them."""
    shown = " and ".join(_SHOWN.get(name, name) for name in OUTPUTS if name in names)
    if not told(scenes, names):
        return None
    fits = best(scenes, names, deadline, others)
    if fits:
        dtype = scenes[0].case.dtype
        changes = tuple(change for fit in fits for change in declaring(fit.model.step, fit.model.how, dtype, names))
        return _Said(f"errors of {shown}{LOOK_LIKE}{_models(fits)}", changes)
    changes = ()
    text = factor_words(scenes, others, names, deadline)
    about_right = all(small(scene, names & scene.failures.keys()) for scene in scenes)
    if not text and about_right:
        text = logarithm_words(scenes, others, names)
    if not text and about_right and (text := exponential_words(scenes, others, names)):
        changes = declaring("exp", "", "", names)
    return _Said(f"errors of {shown}{LOOK_LIKE}{text}", changes) if text else None


def _models(fits: list[Fit]) -> str:
    if not fits:
        return ""
    first = fits[0]
    how = f"ratio to that model {first.ratio:.2f}, {100 * first.explained:.0f} % of the squared error explained"
    others = "".join(f", or {fit.words}" for fit in fits[1:3])
    return f"{first.words}{others} ({how})"
