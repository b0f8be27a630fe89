"""The numerical form of each dtype, and what of it looks like a defect."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.describe.fields import value_text
from flashverify.formats import DTYPES
from flashverify.probing.answers import FormFitted, Lost
from flashverify.probing.forms import HARMLESS, declared_by, loosening, words_of
from flashverify.probing.questions import FormFit
from flashverify.probing.record import FormRecord
from flashverify.probing.topics.form_cases import form_cases

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flashverify.probing.notebook import Notebook

__all__ = ["numerical_forms"]

_SECONDS = 0.35
"""Of the whole time, for the forms of all dtypes."""


def numerical_forms(notebook: Notebook, seconds: float, asked: Sequence[str] = DTYPES) -> None:
    """The smallest form of each dtype that explains its cases.

    Fields that loosen a bound are no part of the declaration: they are said to look like a defect.

    Args:
        notebook: of the probe.
        seconds: of the whole probe.
        asked: dtypes to fit.
    """
    found = [dtype for dtype in notebook.values["supports", "dtypes"] if dtype in asked and _declared(notebook, dtype)]
    shares: list[float] = []
    kept: dict[str, dict[str, Any]] = {}
    for dtype in found:
        fit = _fit(notebook, dtype, _SECONDS * seconds / len(found))
        if fit is None:
            continue
        loose = loosening(fit.found or {})
        kept[dtype] = {name: value for name, value in (fit.found or {}).items() if name not in loose}
        before = len(notebook.suspects)
        _suspicions(notebook, dtype, fit, loose)
        if not fit.modelled:
            notebook.undecided.append(
                f"roundings that stay inside the bounds in {dtype}: not looked for to the end, for lack of time"
            )
        if fit.reads_outputs is not None:
            shares.append(fit.reads_outputs)
        notebook.form_records.append(_record(dtype, fit))
        if notebook.stated("form"):
            _declared_form(notebook, dtype, fit, suspicious=len(notebook.suspects) > before)
        if len(notebook.suspects) > before or fit.found is None:
            notebook.doubtful.add(dtype)
    merged = {name: value for fields in kept.values() for name, value in fields.items()}
    for name, value in merged.items():
        notebook.infer(
            "form", name, value, f"smaller forms are refuted in {', '.join(d for d in kept if name in kept[d])}"
        )
    if shares and len(set(shares)) == 1:
        notebook.infer("contract", "reads_outputs", shares[0] == 1.0, "the rounding of O is seen in dQ and dK, or not")
        notebook.dispute("reads_outputs", f"the share of the rounding of O in dQ and dK is {shares[0]:g}", {})
    elif notebook.gradients:
        notebook.undecided.append(
            "reads_outputs: the errors of dQ and dK do not tell whether the backward starts from the returned O"
        )
    explained = [dtype for dtype in found if dtype in kept and dtype not in notebook.doubtful]
    if explained and notebook.base["dtype"] not in explained:
        notebook.base = notebook.base | {"dtype": explained[0]}


def _declared(notebook: Notebook, dtype: str) -> bool:
    """Whether the author's declaration, if there is one, holds the dtype."""
    return not notebook.stated("supports") or repr(dtype) in notebook.loaded.declared["supports"]["dtypes"]


def _declared_form(notebook: Notebook, dtype: str, fit: FormFitted, *, suspicious: bool) -> None:
    """Whether the form that the author declares explains what was seen; where something else looks like a defect, that says enough."""
    from flashverify.numerics.form import Form

    if fit.declared is None:
        notebook.confirmed |= {("form", field.name) for field in dataclasses.fields(Form)}
        return
    notebook.form_refuted = True
    if suspicious:
        return
    against = fit.declared
    notebook.suspect(
        f"the declared form in {dtype}",
        f"under {against.form} {against.output} is {against.ratio:.4g} times its bound, and under {_form_text(fit.found or {})} within it",
        against.case,
    )


def _fit(notebook: Notebook, dtype: str, seconds: float) -> FormFitted | None:
    question = FormFit(
        fitted=form_cases(notebook, dtype, "fitted"),
        held_out=form_cases(notebook, dtype, "held out"),
        assumed=notebook.assumed(dtype),
        seconds=seconds,
    )
    answer = notebook.ask(question)
    if isinstance(answer, Lost):
        notebook.undecided.append(f"form in {dtype}: {answer.why}")
        return None
    assert isinstance(answer, FormFitted)
    if not answer.worst:
        notebook.undecided.append(f"form in {dtype}: too few of its cases run")
        return None
    notebook.forms[dtype] = answer.found
    return answer


def _suspicions(notebook: Notebook, dtype: str, fit: FormFitted, loose: dict[str, Any]) -> None:
    """What the fit says that looks like a defect."""
    for name in fit.gross:
        notebook.suspect(name, f"it is wrong by more than any rounding: {fit.failures[name][0]}", fit.failures[name][1])
    notebook.ignored |= set(fit.gross)
    seen = declared_by((signature.output, signature.words) for signature in fit.signatures)
    loose = {name: value for name, value in loose.items() if name not in seen}
    told = {signature.output for signature in fit.signatures}
    if loose and not (fit.refuted and fit.refuted[0].output in told):
        smaller = fit.refuted[0] if fit.refuted else None
        against = f", where {smaller.output} is {smaller.ratio:.4g} times its bound" if smaller else ""
        others = []
        for each in fit.others:
            change = {name: value for name, value in loosening(each).items() if name not in seen}
            if change and change != loose:
                others.append(change)
        either = "; or ".join(dict.fromkeys(map(words_of, (loose, *others))))
        notebook.suspect(
            f"{next(iter(loose))} in {dtype}",
            f"{either}: no form without it explains its {fit.fitted} cases{against}",
            smaller.case if smaller else None,
            declare=" or ".join(map(_form_text, (loose, *others))),
        )
    if fit.found is None and len(fit.refuted) < HARMLESS:
        notebook.undecided.append(
            f"form in {dtype}: {len(fit.refuted)} forms are refuted, and there was no time for the others"
        )
    elif fit.found is None and fit.refuted[0].output not in told:
        first, rest = fit.refuted[0], "" if fit.searched else ", and there was no time for more"
        notebook.suspect(
            f"the numerical form in {dtype}",
            f"none of {len(fit.refuted)} forms that were tried explains {first.output}, which is {first.ratio:.4g} times its bound under the "
            f"plainest one{rest}",
            first.case,
        )
    for failed in (each for each in fit.failed if fit.found is not None and each.output not in told):
        notebook.suspect(
            f"{failed.output} in {dtype}",
            f"the form that explains {fit.fitted} cases fails on one that was held out: {failed.ratio:.4g} times its bound",
            failed.case,
        )
    for words in dict.fromkeys(signature.words for signature in fit.signatures):
        same = [signature for signature in fit.signatures if signature.words == words]
        outputs = " and ".join(signature.output for signature in same)
        explained = 100 * min(signature.explained for signature in same)
        declare = declared_by((signature.output, words) for signature in same)
        notebook.suspect(
            f"the rounding of {outputs} in {dtype}",
            f"the errors of {outputs} are those of {words} ({explained:.0f} % of the squared error predicted element by element, on "
            "fitted and held-out cases)",
            declare=_form_text(declare) if declare else "",
        )


def _form_text(fields: Mapping[str, Any]) -> str:
    return f"Form({', '.join(f'{name}={value_text(value)}' for name, value in fields.items())})"


def _record(dtype: str, fit: FormFitted) -> FormRecord:
    return FormRecord(
        dtype=dtype,
        form="" if fit.found is None else _form_text(fit.found),
        fitted=fit.fitted,
        held_out=fit.held_out,
        failed=fit.failed,
        refuted=fit.refuted,
        worst=fit.worst,
        tiles=fit.tiles,
    )
