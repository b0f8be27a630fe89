"""Steps that read the same tensor: read at another place, it changes both of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flashverify.diagnosis.readings.backward.variants import Option

__all__ = ["together"]

_Q, _K = "the weights are made of Q of ", "the weights are made of K of "
_LSE, _DELTA = "the weights take the LSE of ", "delta is that of "
_BOTH = "delta and dLSE are those of "
_PAIRS = {
    "dq": (("weights", _K, "key operand", ""), ("weights", _LSE, "rows", _DELTA), ("weights", _LSE, "rows", _BOTH)),
    "dk": (("weights", _Q, "row operand", ""), ("weights", _LSE, "rows", _DELTA), ("weights", _LSE, "rows", _BOTH)),
    "dbias": (("weights", _LSE, "rows", _DELTA), ("weights", _LSE, "rows", _BOTH)),
}
"""By output: a step and how the words of its variants begin, before those of a place, and another step that reads at that place too."""


def together(output: str, variants: Mapping[str, tuple[Option, ...]]) -> Iterator[dict[str, Option]]:
    """Two steps at once with the variants of one place.

    Args:
        output: `dq`, `dk`, `dv` or `dbias`.
        variants: of each step.
    """
    for first, begin, second, other in _PAIRS.get(output, ()):
        places = {each.words.removeprefix(other): each for each in variants[second] if each.words.startswith(other)}
        for each in variants[first]:
            place = each.words.removeprefix(begin)
            if each.words.startswith(begin) and place in places:
                yield {first: each, second: places[place]}
