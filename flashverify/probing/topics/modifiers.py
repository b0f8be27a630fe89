"""What is done to the logits and the weights, and the scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.probing.topics.looks import looked
from flashverify.probing.topics.parts import has_part

if TYPE_CHECKING:
    from flashverify.probing.notebook import Notebook
    from flashverify.probing.words import Words

__all__ = ["modifiers", "scales"]

_MODIFIERS: dict[str, tuple[Words, ...]] = {
    "softcap": ({"softcap": 2},),
    "alibi": ({"alibi": "yes"}, {"alibi": "wild"}),
    "bias": ({"bias": "full"}, {"bias": "head"}, {"bias": "shared"}),
    "sink": ({"sink": "yes"},),
    "relative_bias": ({"relative_bias": "8,16"}, {"relative_bias": "8,16,both"}),
}
"""The kinds of each modifier, the plain one first."""
_SCALES: dict[str, str] = {"positive": "0.5", "zero": "0", "negative": "-0.25"}


def modifiers(notebook: Notebook) -> None:
    """Softcap, ALiBi, biases, sinks and dropout."""
    found = []
    for name, kinds in _MODIFIERS.items():
        without: Words = {next(iter(kinds[0])): None}
        ran = []
        for words in kinds:
            seen = notebook.seen(words, {"without": without})
            if has_part(notebook, name, seen, words, kind="logits"):
                ran.append(words)
            elif not seen.ran and ran:
                notebook.notes.append(f"{words} raises: {seen.raised}")
            if looked(seen, name) == "no" and seen.ran:
                break
        if ran:
            found.append(name)
            if name == "alibi" and {"alibi": "wild"} not in ran:
                notebook.infer("supports", "wild_slopes", False, "negative and large slopes raise")
    notebook.infer("supports", "logits", tuple(found), "their cases run")
    seen = notebook.seen({"dropout": "0.25"}, {"without": {"dropout": None}})
    if seen.ran and looked(seen, "dropout") != "no":
        verdict = notebook.verdict(seen)
        if verdict == "right":
            notebook.infer("supports", "dropout", True, "the pattern is the one that the problem names")
        elif verdict == "wrong":
            notebook.undecided.append(
                "dropout: weights are dropped by another generator than that of the problem, so no pattern was judged"
            )


def scales(notebook: Notebook) -> None:
    """Which scales are right, and whether the one that is asked for is taken."""
    default = 1.0 / float(str(notebook.base["dim_qk"])) ** 0.5
    if "scale" in notebook.base:
        notebook.undecided.append("scales: the plainest case is right with scale=1 alone")
        return
    found, fixed = [], False
    for sign, scale in _SCALES.items():
        words: Words = {"scale": scale}
        seen = notebook.seen(words, {"default": {"scale": None}})
        verdict = notebook.verdict(seen)
        if verdict == "default":
            fixed = True
            break
        if verdict == "right":
            found.append(sign)
        elif verdict == "wrong" and sign == "positive":
            notebook.suspect("the scale", seen.failure, words)
            found.append(sign)
        elif verdict == "wrong":
            notebook.notes.append(f"a scale that is {sign} is wrong, and is left out of `scales`: {seen.failure}")
    if fixed:
        _fixed_scale(notebook, default)
    elif found:
        notebook.infer("supports", "scales", tuple(found), "right with the scale of the problem")


def _fixed_scale(notebook: Notebook, default: float) -> None:
    """The scale is its own: 1 / sqrt(D), or a number that is right for one head dim."""
    dim = int(str(notebook.base["dim_qk"])) // 2
    seen = notebook.seen({"dim_qk": dim, "dim_v": dim}, {"same": {"scale": repr(default)}})
    if notebook.verdict(seen) == "same":
        notebook.infer("supports", "scales", (default,), "the same scale for other head dims")
    else:
        notebook.infer("supports", "scales", ("default",), "1 / sqrt(dim_qk) whatever is asked for")
