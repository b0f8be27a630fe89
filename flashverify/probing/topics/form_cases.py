"""The cases that a numerical form is fitted on, and those that it is judged on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from flashverify.errors import UsageError
from flashverify.probing.words import case_text

if TYPE_CHECKING:
    from flashverify.probing.notebook import Notebook
    from flashverify.probing.words import Words

__all__ = ["form_cases"]

_FITTED: tuple[tuple[str, int, int], ...] = (
    ("normal", 1, 1),
    ("v-positive", 1, 3),
    ("logits-1e2", 1, 2),
    ("near-ties", 1, 1),
    ("normal", 1, 12),
    ("q-zero", 1, 1),
    ("tiny", 1, 2),
)
_HELD_OUT: tuple[tuple[str, int, int], ...] = (
    ("normal", 2, 1),
    ("v-positive", 1, 1),
    ("outlier", 1, 2),
    ("v-cancelling", 1, 3),
    ("ascending", 1, 9),
    ("q-zero", 1, 2),
    ("integers", 1, 1),
)
"""Regimes of values, with rows and keys in units of those of the plainest case; the two lists have no case in common. Those by which
roundings are told apart come first."""
_SEEDS = {"fitted": 11, "held out": 1007}


def form_cases(notebook: Notebook, dtype: str, kind: Literal["fitted", "held out"]) -> tuple[str, ...]:
    """Texts of the cases of a dtype; those that there cannot be are left out."""
    entries = _FITTED if kind == "fitted" else _HELD_OUT
    return tuple(text for entry in entries if (text := _case(notebook, dtype, entry, _SEEDS[kind])))


def _case(notebook: Notebook, dtype: str, entry: tuple[str, int, int], seed: int) -> str:
    regime, rows, keys = entry
    q, k = (int(str(notebook.base[name])) for name in ("seq_q", "seq_k"))
    words: Words = {"dtype": dtype, "regime": regime, "seed": seed + 7 * rows + keys}
    words |= {"backward": "yes" if notebook.gradients else "no"}
    if "packed" in notebook.base:
        words["packed"] = f"0,{q * rows}/0,{k * keys}"
    if "klen" in notebook.base:
        words["klen"] = k * keys
    try:
        return case_text(notebook.base | {"seq_q": q * rows, "seq_k": k * keys} | words)
    except UsageError:
        return ""
