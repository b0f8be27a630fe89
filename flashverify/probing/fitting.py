"""The smallest numerical form that explains what a subject returned, fitted on some cases and judged on others."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import torch

from flashverify.case.text import format_case
from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.precision.fitting import best, declared_share
from flashverify.diagnosis.precision.forms import form_text, worst_beside_bounds
from flashverify.numerics.form import Form
from flashverify.probing.answers import FormFitted, Refuted, Signature
from flashverify.probing.forms import declared_by, rungs
from flashverify.probing.scenes import end_to_end, forward_alone, gross_errors, scenes_of, without
from flashverify.truth import Truth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.diagnosis.clock import End
    from flashverify.diagnosis.observation import Scene
    from flashverify.probing.questions import FormFit
    from flashverify.subjects.interface import Subject

__all__ = ["fitted_form"]

_NEEDED = 2
"""Scenes of each kind without which nothing is said."""
_SIGNATURES = 0.6
"""Share of the time at whose end no further model of roundings is tried."""
_MODELLED = ("o", "lse", "dq", "dk", "dv")
_TILES = (16, 32, 64, 128)
_LARGEST_EMULATED = 1 << 15
"""Pairs of rows and keys, over all heads, up to which a case is put to the models of roundings."""
_AS_DECLARED = 0.9
"""Share of the squared error of an output that its declared roundings must predict for no other model to be tried."""
_FINER = ("P in fp32", "dS in fp32")
"""Models that round less than is declared."""


def fitted_form(subject: Subject, asked: FormFit) -> FormFitted:
    """The form, the smaller ones that cases refuted, and how it does on the cases that were held out."""
    clock = Clock()  # of the wall: who asks waits no longer
    modelling, end = clock.end(_SIGNATURES * asked.seconds), clock.end(asked.seconds)
    fitted, held = (scenes_of(subject, asked, texts) for texts in (asked.fitted, asked.held_out))
    if len(fitted) < _NEEDED or len(held) < _NEEDED:
        return FormFitted(found=None, fitted=len(fitted), held_out=len(held))
    gross = gross_errors([*fitted, *held])
    if gross:
        fitted, held = ([without(scene, gross) for scene in scenes] for scenes in (fitted, held))
    base = Form(lse_base=asked.assumed.lse_base)
    signatures = _signatures(fitted, held, modelling)
    seen = declared_by((s.output, s.words) for s in signatures)
    plainest = _against(list(fitted), base) if seen else None
    base = dataclasses.replace(base, **seen)
    modelled = not modelling.over
    same, refuted = _smallest(fitted, base, end)
    found = seen | same[0] if same else None
    best_form = dataclasses.replace(base, **(found or {}))
    failed = [each for scene in held if (each := _refuted(scene, best_form)) is not None]
    return FormFitted(
        found=found,
        others=tuple(seen | change for change in same[1:]),
        refuted=(*([plainest] if plainest is not None else []), *refuted),
        fitted=len(fitted),
        held_out=len(held),
        failed=tuple(failed),
        signatures=tuple(signatures),
        gross=tuple(gross),
        failures=gross,
        modelled=modelled,
        searched=bool(same) or not end.over,
        reads_outputs=_reads_outputs([*fitted, *held]),
        tiles=_tiles(fitted, held) if found == {} else 0,
        worst=_worst([*fitted, *held], best_form),
        declared=next(
            (each for scene in (*fitted, *held) if (each := _refuted(scene, _own(subject, scene))) is not None), None
        ),
    )


def _own(subject: Subject, scene: Scene) -> Form:
    """The form that the subject declares for a case, with the base of the LSE that it returns."""
    return dataclasses.replace(subject.form(scene.case), lse_base=scene.form.lse_base)


def _refuted(scene: Scene, form: Form) -> Refuted | None:
    """The worst output of a scene under a form; None where all are within their bounds."""
    outputs = worst_beside_bounds(end_to_end(scene), form)
    name = max(outputs, key=lambda each: outputs[each], default="")
    if not name:
        return None
    return Refuted(form=form_text(form), case=format_case(scene.case), output=name, ratio=outputs[name])


def _smallest(scenes: Sequence[Scene], base: Form, deadline: End) -> tuple[list[dict[str, Any]], list[Refuted]]:
    """The changes of the lowest rung that explain every scene, and for each form below it a case that refutes it."""
    refuted: list[Refuted] = []
    order = list(scenes)
    for rung in rungs(scenes[0].case.dtype):
        found = []
        for change in rung:
            try:
                form = dataclasses.replace(base, **change)
            except ValueError:  # it contradicts the roundings that were seen
                continue
            against = _against(order, form)
            if against is None:
                found.append(dict(change))
            else:
                refuted.append(against)
            if deadline.over:
                return found, refuted
        if found:
            return found, refuted
    return [], refuted


def _against(order: list[Scene], form: Form) -> Refuted | None:
    """What refutes a form; the scene that does comes first from then on, because it refutes most."""
    for scene in order:
        against = _refuted(scene, form)
        if against is not None:
            order.remove(scene)
            order.insert(0, scene)
            return against
    return None


def _worst(scenes: Sequence[Scene], form: Form) -> dict[str, float]:
    found: dict[str, float] = {}
    for scene in scenes:
        for name, ratio in worst_beside_bounds(end_to_end(scene), form, all_elements=True).items():
            found[name] = max(found.get(name, 0.0), ratio)
    return found


def _signatures(fitted: Sequence[Scene], held: Sequence[Scene], deadline: End) -> list[Signature]:
    """Models of one rounding that predict the errors of an output on fitted and on held-out scenes alike."""
    found = []
    small = [[s for s in scenes if _pairs(s) <= _LARGEST_EMULATED] for scenes in (fitted, held)]
    if min(map(len, small)) < _NEEDED:
        return []
    for name in _MODELLED:
        if not all(name in scene.right for scenes in small for scene in scenes[:_NEEDED]):
            continue
        if declared_share([scenes[0] for scenes in small], name) > _AS_DECLARED:
            continue
        first = best(small[0][:_NEEDED], frozenset({name}), deadline)
        if not first or first[0].words in _FINER:
            continue
        again = {fit.words: fit for fit in best(small[1][:_NEEDED], frozenset({name}), deadline)}
        agreed = next((fit for fit in first if fit.words in again and fit.words not in _FINER), None)
        if agreed is not None:
            explained = min(agreed.explained, again[agreed.words].explained)
            found.append(Signature(output=name, words=agreed.words, explained=explained))
    return found


def _pairs(scene: Scene) -> int:
    case = scene.case
    return case.batch * case.heads_q * case.seq_q * case.seq_k


_NEAR, _SURE = 0.2, 0.05
"""Largest distance of a share from 0 or 1, and its largest standard error, for it to be told."""


def _reads_outputs(scenes: Sequence[Scene]) -> float | None:
    """How much of the rounding of O and the LSE reaches dQ and dK, by least squares over all scenes; None where it cannot be told."""
    moves, errors = [], []
    for scene in scenes:
        if scene.inputs.do is None or scene.o is None or scene.lse is None or scene.case.dtype == "fp32":
            continue
        own = Truth(scene.inputs, scene.case.dtype, scene.form)
        given, exact = own.conditional(scene.o, scene.lse / scene.unit), own.backward()
        for name in ("dq", "dk"):
            if name not in scene.outputs:
                continue
            (a, bound), (b, _) = given[name], exact[name]
            scale = bound.total.where(torch.isfinite(bound.total), torch.inf)
            moved, error = ((x - b) / scale for x in (a, scene.outputs[name]))
            kept = torch.isfinite(moved) & torch.isfinite(error)
            moves.append(moved[kept])
            errors.append(error[kept])
    moved, error = (torch.cat(x) if x else torch.zeros(0) for x in (moves, errors))
    size = float((moved**2).sum())
    if not size:
        return None
    share = float((moved * error).sum()) / size
    sure = math.sqrt(float((moved**2 * (error - share * moved) ** 2).sum())) / size
    settled = round(share)
    return float(settled) if settled in (0, 1) and abs(share - settled) < _NEAR and sure < _SURE else None


def _tiles(fitted: Sequence[Scene], held: Sequence[Scene]) -> int:
    """The only width of tiles under which the rounded weights of every scene are predicted; 0 where there is none or several."""
    scenes = [*fitted, *held]
    if scenes[0].case.dtype == "fp32":
        return 0
    fits = []
    for size in _TILES:
        form = dataclasses.replace(scenes[0].form, block_n=size, key_order="ascending")
        if not any(worst_beside_bounds(forward_alone(scene), form) for scene in scenes):
            fits.append(size)
    return fits[0] if len(fits) == 1 else 0
