"""A whole probe: every topic in turn, as far as the budget goes."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from flashverify.formats import DTYPES
from flashverify.probing.declaration import code_of, fields_of, inferred_supports, plain_supports
from flashverify.probing.notebook import Notebook, TimeOverError
from flashverify.probing.record import Inference
from flashverify.probing.topics.backward import gradient_through_lse, gradients, gradients_of_terms
from flashverify.probing.topics.dtypes import dtypes, precisions
from flashverify.probing.topics.held_out import explain_suspects, held_out_cases
from flashverify.probing.topics.mask_parts import combined_parts, other_masks
from flashverify.probing.topics.masks import causal_mask, windows
from flashverify.probing.topics.modifiers import modifiers, scales
from flashverify.probing.topics.numerical_form import numerical_forms
from flashverify.probing.topics.plainest import plainest_case, returned_outputs
from flashverify.probing.topics.promises import empty_rows, launches, outside_lengths, repeats
from flashverify.probing.topics.sizes import empty_sizes, head_counts, head_dims, lengths
from flashverify.probing.topics.storage import storage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flashverify.case.supports import Supports
    from flashverify.probing.answers import Loaded
    from flashverify.probing.asking import Asker

__all__ = ["TOPICS", "survey"]

TOPICS: dict[str, Callable[[Notebook], None]] = {
    "lengths": lengths,
    "heads": head_counts,
    "head dims": head_dims,
    "precisions": precisions,
    "scales": scales,
    "causal": causal_mask,
    "windows": windows,
    "other parts of the mask": other_masks,
    "modifiers": modifiers,
    "storage": storage,
    "gradient through the LSE": gradient_through_lse,
    "gradients of terms": gradients_of_terms,
    "rows without keys": empty_rows,
    "outside the lengths": outside_lengths,
    "repeats": repeats,
    "launch values": launches,
    "combined parts": combined_parts,
    "empty sizes": empty_sizes,
}
"""What is asked after the plainest case, the gradients, the dtypes and their forms, by name, in this order."""
_TOPICS, _HELD_OUT = 0.75, 0.9
"""Shares of the time at whose ends no further topic is begun and no further drawn case is judged."""
_EXPLAINED = 5.0
"""Seconds for naming what explains a suspect."""


def survey(
    asker: Asker,
    loaded: Loaded,
    *,
    spec: str,
    device: str,
    seconds: float,
    topics: Sequence[str] | None = None,
    forms: Sequence[str] = DTYPES,
) -> Inference:
    """What a subject takes, returns and computes, worked out by trying.

    Args:
        asker: runs the subject.
        loaded: the subject as it declares itself.
        spec: the subject, as it was named.
        device: `cpu` or `cuda`.
        seconds: after which nothing more is asked.
        topics: names out of `TOPICS`; None for all of them.
        forms: dtypes whose numerical form is inferred.

    Raises:
        NoVerdictError: the subject runs no case, or the harness failed.
    """
    begun = time.monotonic()
    notebook = Notebook(asker=asker, loaded=loaded, device=device, end=begun + seconds)
    chosen = list(TOPICS if topics is None else topics)
    notebook.end = begun + _TOPICS * seconds
    plainest_case(notebook)
    left = ["outputs", "gradients", "dtypes", *(["numerical forms"] if forms else []), *chosen]
    steps: dict[str, Callable[[Notebook], None]] = {
        "outputs": returned_outputs,
        "gradients": gradients,
        "dtypes": dtypes,
        "numerical forms": lambda book: numerical_forms(book, seconds, forms),
        **TOPICS,
    }
    try:
        while left:
            steps[left[0]](notebook)
            del left[0]
    except TimeOverError:
        notebook.undecided.append(f"not asked, or not to the end, for lack of time: {', '.join(left)}")
    supports = inferred_supports(notebook)
    if topics is None:
        _judged(notebook, supports, begun, seconds)
    return Inference(
        spec=spec,
        name=loaded.name,
        device=device,
        evidence=loaded.evidence,
        fields=fields_of(notebook),
        suspects=tuple(notebook.suspects),
        forms=tuple(notebook.form_records),
        notes=tuple(dict.fromkeys(notebook.notes)),
        silent=tuple(f"{reason}: {failure}; {case}" for reason, (case, failure) in notebook.silent.items()),
        undecided=tuple(notebook.undecided),
        held=tuple(notebook.held),
        code=code_of(notebook),
        judged=notebook.judged,
        failed=tuple(notebook.failed),
        trials=notebook.trials,
        lost=getattr(asker, "lost", 0),
        seconds=round(time.monotonic() - begun, 1),
        finished=not left,
    )


def _judged(notebook: Notebook, supports: Supports, begun: float, seconds: float) -> None:
    """Drawn cases, and names for what looks like a defect, as far as the time goes."""
    notebook.end = begun + _HELD_OUT * seconds
    with contextlib.suppress(TimeOverError):
        held_out_cases(notebook, supports)
    notebook.end = begun + seconds
    explain_suspects(notebook, plain_supports(supports), _EXPLAINED)
