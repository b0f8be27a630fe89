"""The inferred declaration on cases that are drawn of it, from which nothing was inferred."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.text import format_case
from flashverify.probing.answers import Explained
from flashverify.probing.notebook import NEAR, TimeOverError
from flashverify.probing.questions import Explain

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.supports import Supports
    from flashverify.probing.notebook import Notebook

__all__ = ["explain_suspects", "held_out_cases"]

_DRAWN = 40
_SEED = 20261
_MOST_FAILED = 3
_WILD = ("overflow", "subnormal-o", "logits-1e4", "logits-1e5", "near-ties-1e4")


def held_out_cases(notebook: Notebook, supports: Supports) -> None:
    """Judges drawn cases until the budget is spent; what raises or is wrong is noted.

    Rows without keys and elements outside the lengths are left out, which have fields of their own.
    """
    from flashverify.campaign.worker.search import draw
    from flashverify.case.space.profiles import profile_of
    from flashverify.case.space.strategies import cases

    known = {suspect.case for suspect in notebook.suspects}
    for case in draw(cases(supports, profile=profile_of(notebook.device)), _DRAWN, _SEED):
        text = format_case(case)
        if case.values.edits or not set(_WILD).isdisjoint(case.values.regimes) or text in known:
            continue
        seen = notebook.tried(text)
        if seen.refused and notebook.stated("supports"):
            continue
        notebook.judged += 1
        if seen.ran and notebook.verdict(seen) == "right":
            continue
        notebook.failed.append(text)
        if not seen.ran:
            notebook.notes.append(f"a case of the inferred declaration raises {seen.raised or seen.unusable}: {text}")
        elif case.dtype not in notebook.doubtful and not notebook.ignored and not _known(notebook, case):
            sentence = (
                f"the inferred form does not explain it: {seen.failure}" if seen.asked.apart < NEAR else seen.failure
            )
            notebook.suspect("a case of the inferred declaration", sentence, text)
        if len(notebook.failed) >= _MOST_FAILED:
            break


def _known(notebook: Notebook, case: Case) -> bool:
    """Whether a part of the case looks like a defect already."""
    names = {word for suspect in notebook.suspects for word in suspect.what.split()}
    return bool(names & (case.mask.parts() | case.logits.names()))


def explain_suspects(notebook: Notebook, supports: dict[str, Any], seconds: float) -> None:
    """Names what explains each suspect that a case shows."""
    for suspect in list(notebook.suspects):
        if not suspect.case or suspect.declare.startswith("Form"):
            continue
        dtype = next((word[6:] for word in suspect.case.split() if word.startswith("dtype=")), "fp16")
        question = Explain(case=suspect.case, assumed=notebook.assumed(dtype, supports=supports), seconds=seconds)
        try:
            answer = notebook.ask(question)
        except TimeOverError:
            return
        if isinstance(answer, Explained) and answer.sentence:
            notebook.renamed(suspect, name=answer.name, diagnosis=answer.sentence)
