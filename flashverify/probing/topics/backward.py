"""Which gradients there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.outputs import BACKWARD, COMMON_GRADIENTS
from flashverify.probing.words import case_text

if TYPE_CHECKING:
    from flashverify.probing.answers import Seen
    from flashverify.probing.notebook import Notebook
    from flashverify.probing.questions import Value
    from flashverify.probing.words import Words

__all__ = ["gradient_through_lse", "gradients", "gradients_of_terms"]

_LEARNED = {
    "dbias": ("bias", {"bias": "head"}),
    "dsink": ("sink", {"sink": "yes"}),
    "drelative_bias": ("relative_bias", {"relative_bias": "8,16"}),
}


def gradients(notebook: Notebook) -> None:
    """Whether there is a backward, and which of dQ, dK, dV and delta it returns."""
    words: Words = {"backward": "yes"}
    seen = notebook.seen(words)
    if seen.raised:
        notebook.infer("supports", "backward", False, f"a backward raised {seen.raised}")
        return
    found = tuple(name for name in COMMON_GRADIENTS if name in seen.outputs)
    if not found:
        notebook.infer("supports", "backward", False, f"no gradient is returned: {seen.unusable}")
        return
    if seen.refused:
        notebook.infer("supports", "backward", False, "it is declared")
        notebook.notes.append("a backward runs, and backward=False is declared")
        return
    notebook.gradients = found
    notebook.infer("contract", "gradients", frozenset(found), "returned by a backward")
    notebook.settled("supports", "backward")
    if not seen.unusable:
        notebook.base = notebook.base | words


def gradient_through_lse(notebook: Notebook) -> None:
    """Whether a gradient that arrives through the LSE counts."""
    if not notebook.gradients or notebook.lse_base is None:
        return
    if notebook.lse_base == "2" and notebook.loaded.function:
        notebook.undecided.append(
            "dlse: autograd takes the gradient of the returned LSE, and dLSE is that of a natural one"
        )
        return
    words: Words = {"backward": "yes", "dlse": "yes"}
    seen = notebook.seen(words, {"without": {"dlse": "no"}})
    verdict = notebook.verdict(seen)
    if verdict == "wrong" and "delta" in notebook.gradients:
        stored: dict[str, Value] = {"stored_delta": "minus_dlse"}
        if notebook.tried(case_text(notebook.base | words), form=stored).right:
            notebook.infer("form", "stored_delta", "minus_dlse", "delta is right with dLSE subtracted, and not without")
            verdict = "right"
    if verdict == "right":
        notebook.infer("supports", "dlse", True, "gradients through the LSE are right")
    elif verdict == "wrong":
        notebook.suspect("the gradient through the LSE", seen.failure, words)
    elif verdict == "without":
        notebook.notes.append("a gradient that arrives through the LSE is left out: dlse=False")


def gradients_of_terms(notebook: Notebook) -> None:
    """The gradients of a bias, of sinks and of a relative bias, of those that the subject has."""
    if not notebook.gradients:
        return
    has = notebook.values.get(("supports", "logits"), ())
    for name, (term, words) in _LEARNED.items():
        if term not in has:
            continue
        before = notebook.gradients
        notebook.gradients = tuple(each for each in BACKWARD if each in (*before, name))
        seen = notebook.seen({**words, "backward": "yes"})
        if not _returned(seen, name):
            notebook.gradients = before
            continue
        if notebook.verdict(seen) == "wrong":
            notebook.suspect(f"the gradient of {term}", seen.failure, {**words, "backward": "yes"})
    notebook.infer("contract", "gradients", frozenset(notebook.gradients), "returned by a backward")


def _returned(seen: Seen, name: str) -> bool:
    return seen.ran and name in seen.outputs
