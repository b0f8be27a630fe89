"""Terms of the logits that are wrong by their own value: entries of a bias, slopes or a table of one sign or size that count otherwise."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.weights.term import BIASES, Term, bias_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.weights.effect import Effect

__all__ = ["bias_value_terms"]

_SIZES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0)
_SIGNS = {
    "bias": ("positive entries of the bias", "negative entries of the bias"),
    "slopes": ("negative slopes of ALiBi", "positive slopes of ALiBi"),  # what they add has the other sign
    "relative_bias": ("positive entries of the relative bias", "negative entries of the relative bias"),
}
_NAMES = {"bias": "the bias", "slopes": "what ALiBi adds", "relative_bias": "the relative bias"}


def bias_value_terms(scene: Scene) -> Iterator[Term]:
    """Each of the biases of a case with the values of one sign as 0 or of the other sign, or clamped."""
    for name, _ in BIASES:
        if getattr(scene.problem, name) is None:
            continue
        for words, sign in zip(_SIGNS[name], (1.0, -1.0), strict=True):
            for how, factor in (("count as 0", 0.0), ("count with the other sign", -1.0)):
                change = partial(lambda x, s, f: torch.where(s * x > 0, f * x, x), s=sign, f=factor)
                yield _term(f"{words} {how}", name, change)
        for size in _SIZES:
            for words, low, high in (("at most", None, size), ("at least -", -size, None), ("within +-", -size, size)):
                clamp = partial(lambda x, low, high: x.clamp(low, high), low=low, high=high)
                yield _term(f"{_NAMES[name]} is clamped: {words}{' ' * words.endswith('most')}{size:g}", name, clamp)


def _term(words: str, name: str, change: Callable[[Tensor], Tensor]) -> Term:
    def of(effect: Effect) -> Tensor | None:
        old = bias_of(effect, name)
        return None if old is None else change(old.double()) - old

    return Term(words=words, kind="exchange", of=of)
