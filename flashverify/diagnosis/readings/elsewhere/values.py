"""Whether the wrong elements of an output are the exact values of other places, or of another output, and by which rule."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.diagnosis.readings.elsewhere.rules import At, Rule, rules
from flashverify.diagnosis.related_cases import variants
from flashverify.outputs import OUTPUTS
from flashverify.outputs import output as output_spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.expected import Expected
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["values_elsewhere"]

_NEEDED = 2
"""Further failing cases on which a rule must hold."""
_TRIED = 10
"""Further cases that are run."""
_SAMPLE = 128
"""Wrong elements that a rule is tried on first."""
_DEFINED = 0.5
"""Share of the wrong elements whose place by the rule exists, at least."""
_CLEAR = 0.25
"""The bound at the other place is at most so much of what tells the two values apart, on half of the elements."""
_SAID = 2
"""Rules that are said where no case tells them apart."""
_FEW = 8
"""Elements that clearly hold the value of the other place, from which on a case tells something where most places do not exist."""
_SHARE = 0.95


@dataclass(slots=True)
class _Fit:
    """A rule that holds so far.

    Attributes:
        source: the output whose values stand there.
        rule: at which places.
        held: further cases on which it holds.
        covered: share of the wrong elements of which it says something, the smallest of all cases.
        launches: whether it fails to hold with other launch parameters, which may have partial results merged.
    """

    source: str
    rule: Rule
    held: int = 0
    covered: float = 1.0
    launches: bool = False


class _Wrong(NamedTuple):
    """The wrong elements of an output: their places, what they hold and what they should hold."""

    at: At
    got: Tensor
    right: Tensor


def values_elsewhere(trials: Trials, scene: Scene, output: str) -> tuple[str, ...]:
    """Sentences that say where the values belong that the wrong elements of an output hold; empty where no rule fits.

    Args:
        trials: runs of the subject; further ones are made, with other values and sizes.
        scene: a run on which `output` fails.
        output: its name.

    Returns:
        At most two sentences: rules that hold on this case and on two further failing ones, and that no case contradicts.
    """
    wrong = _wrong_of(scene, output)
    if wrong is None:  # where all wrong elements are NaN, other cases may tell where the values went
        scene, wrong = next(_having(trials, output), (scene, None))
    if wrong is None:
        return ()
    left = []
    for source, rule in _candidates(scene, output):
        answer = _holds(scene, source, rule, wrong)
        if answer:
            left.append(_Fit(source, rule, covered=_covered(rule, wrong)))
        elif answer is None and _covered(rule, wrong):  # few of its places exist here: another case has to hold as well
            left.append(_Fit(source, rule, held=-1))
    for other in _further(trials, scene, output) if left else ():
        again = _wrong_of(other, output)
        if again is None:
            continue
        answers = [_holds(other, fit.source, fit.rule, again) for fit in left]
        if not _launched_alike(scene, other):
            for fit, answer in zip(left, answers, strict=True):
                fit.launches |= answer is False
            continue
        for fit, answer in zip(left, answers, strict=True):
            if answer:
                fit.held += 1
                fit.covered = min(fit.covered, _covered(fit.rule, again))
        left = [fit for fit, answer in zip(left, answers, strict=True) if answer is not False]
        if not left:
            return ()
    told = sorted((fit for fit in left if fit.held >= _NEEDED), key=lambda fit: -fit.covered)
    return tuple(_said(output, fit, nan=_some_nan(trials, output)) for fit in _different(told, wrong)[:_SAID])


def _having(trials: Trials, output: str) -> Iterator[tuple[Scene, _Wrong]]:
    """Runs in which elements of an output are wrong that are no NaN."""
    for scene in tuple(trials.scenes.values()):
        found = _wrong_of(scene, output)
        if found is not None:
            yield scene, found


def _some_nan(trials: Trials, output: str) -> bool:
    """Whether wrong elements are NaN in any of the runs."""
    return any(
        bool(s.outputs[output][s.failures[output]].isnan().any())
        for s in trials.scenes.values()
        if output in s.failures
    )


def _launched_alike(one: Scene, two: Scene) -> bool:
    """Whether launch parameters and the number of splits are the same."""
    return one.case.launch == two.case.launch and one.form.n_splits == two.form.n_splits


def _covered(rule: Rule, wrong: _Wrong) -> float:
    """Of the wrong elements the share whose place by the rule exists."""
    return float(rule.source(wrong.at).inside().double().mean())


def _different(fits: list[_Fit], wrong: _Wrong) -> list[_Fit]:
    """Those that cover as much as the first one, and do not say the same of every wrong element as one before them."""
    found: list[_Fit] = []
    for fit in fits:
        if fit.covered == fits[0].covered and all(_tells(fit, other, wrong) for other in found):
            found.append(fit)
    return found


def _tells(one: _Fit, two: _Fit, wrong: _Wrong) -> bool:
    if one.source != two.source:
        return True
    a, b = one.rule.source(wrong.at), two.rule.source(wrong.at)
    both = a.inside() | b.inside()
    return any(bool((x != y)[both].any()) for x, y in zip(a[:4], b[:4], strict=True))


def _candidates(scene: Scene, output: str) -> Iterable[tuple[str, Rule]]:
    """The output and a rule each; then other outputs of its shape at the same places."""
    yield from ((output, rule) for rule in rules())
    shape = scene.outputs[output].shape
    same = Rule("", lambda at: at)
    yield from (
        (name, same)
        for name in OUTPUTS
        if name != output and name in scene.right and scene.outputs[name].shape == shape
    )


def _further(trials: Trials, scene: Scene, output: str) -> Iterable[Scene]:
    """Other failing cases: those that were run before, and fresh ones."""
    known = [each for each in trials.scenes.values() if each is not scene and each.case != scene.case]
    yield from (each for each in known if output in each.failures)
    fresh = (case for case in variants(trials.subject, scene.case) if not trials.known(case))
    yield from (each for each in trials.of(islice(fresh, _TRIED), share=_SHARE) if output in each.failures)


def _wrong_of(scene: Scene, name: str) -> _Wrong | None:
    mask = scene.failures.get(name)
    if mask is None or name not in scene.outputs:
        return None
    if (free := scene.free.get(name)) is not None:
        mask = mask & ~free
    where = _four(mask & ~scene.outputs[name].isnan(), name).nonzero()
    if not len(where):
        return None
    sizes = tuple(_four(scene.outputs[name], name).shape)
    b, h, i, c = where.T
    at = At(b, h, i, c, sizes, _group(scene, name), scene.case.seq_k - scene.case.seq_q)  # type: ignore[arg-type]
    places = (b, h, i, c)
    return _Wrong(at, _four(scene.outputs[name], name)[places], _four(scene.right[name].value, name)[places])


def _group(scene: Scene, name: str) -> int:
    return scene.group if "head_q" in output_spec(name).axes else 1


def _four(x: Tensor, name: str) -> Tensor:
    """The tensor as `[sequences, heads, rows or keys or buckets, channels or keys]`."""
    axes = output_spec(name).axes
    x = x if "batch" in axes else x.unsqueeze(0)
    while x.dim() < 4:
        x = x.unsqueeze(-1)
    return x


def _holds(scene: Scene, source: str, rule: Rule, wrong: _Wrong) -> bool | None:
    """Whether every wrong element holds what the rule says, and that is not what it should hold; None where it says too little."""
    count, expected = len(wrong.got), scene.right[source]
    if count > _SAMPLE:
        some = torch.arange(0, count, count // _SAMPLE)
        at = wrong.at._replace(b=wrong.at.b[some], h=wrong.at.h[some], i=wrong.at.i[some], c=wrong.at.c[some])
        if _all_hold(expected, source, rule, _Wrong(at, wrong.got[some], wrong.right[some])) is False:
            return False
    return _all_hold(expected, source, rule, wrong)


def _all_hold(expected: Expected, name: str, rule: Rule, wrong: _Wrong) -> bool | None:
    to = rule.source(wrong.at)
    inside = to.inside()
    places = tuple(x[inside] for x in to[:4])
    value, total = (_four(x, name)[places] for x in (expected.value, expected.total))
    got, right = wrong.got[inside], wrong.right[inside]
    if not bool(((got == value) | ((got - value).abs() <= total)).all()):
        return False
    clear = (total <= _CLEAR * (value - right).abs()) | ((got == value) & (total == 0))
    clear &= torch.isfinite(value) & (value != 0)  # 0 and -inf stand at every place without keys
    share = float(clear.double().mean()) if len(clear) else 0.0
    if float(inside.double().mean()) < _DEFINED:
        return True if share >= _DEFINED and int(clear.sum()) >= _FEW else None
    return share >= _DEFINED


def _said(output: str, fit: _Fit, *, nan: bool) -> str:
    which = f"wrong element of {output}{' that is not NaN' if nan else ''}"
    beside = "; with other launch parameters it is wrong in another way" if fit.launches else ""
    if fit.source != output:
        return f"Every {which} holds the exact value of {fit.source} at the same place{beside}."
    axes = output_spec(output).axes
    line = "key" if axes[2:3] == ("key",) else "bucket" if "bucket" in axes else "row"
    channel = "key" if axes[3:] == ("key",) else "channel"
    words = fit.rule.words.format(line=line, channel=channel)
    return f"Every {which} holds the exact value of {words}{beside}."
