"""A variant of one step of the backward: its words, and its values on every case."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from flashverify.diagnosis.readings.backward.moves import key_moves, moved, row_moves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene

    Value = Callable[[Scene, Steps], Any]

__all__ = ["Option", "RowTerms", "added_names", "draws_elsewhere", "of_row"]


class Option(NamedTuple):
    """A variant of one step.

    Attributes:
        words: a sentence without its full stop; empty for the declared step.
        value: of a problem and its declared steps; None where the case has not what it is about.
        elsewhere: whether something is read at another place.
        by_value: whether a number in the code stands beside values.
    """

    words: str
    value: Value
    elsewhere: bool = False
    by_value: bool = False


class RowTerms(NamedTuple):
    """What dP is compared with: delta and dLSE, `[B, Hq, Sq]`."""

    delta: Tensor
    dlse: Tensor


def of_row(words: str, read: Callable[[Steps, Callable[[Tensor], Tensor]], Any]) -> Value:
    """What `read` makes of the steps and of how tensors of rows are read elsewhere."""

    def value(scene: Scene, s: Steps) -> Any:
        move = row_moves(scene).get(words)
        return None if move is None else read(s, lambda x: moved(x, move))

    return value


def added_names(scene: Scene) -> list[str]:
    """Names of what is added to the logits, in the order of `Inputs.biases`."""
    problem = scene.problem
    given = (("the bias", problem.bias), ("ALiBi", problem.slopes), ("the relative bias", problem.relative_bias))
    return [name for name, tensor in given if tensor is not None]


def draws_elsewhere(scene: Scene) -> Iterator[tuple[str, Value]]:
    """What dropout multiplies by at other rows, heads, sequences and keys, with the words of the place."""
    for words in row_moves(scene):
        yield words, of_row(words, lambda s, read: read(s.kept))
    for words in key_moves(scene):
        if words.startswith(("key j", "the key")):
            yield words, partial(_draws_of_key, words)


def _draws_of_key(words: str, scene: Scene, s: Steps) -> Tensor | None:
    move = key_moves(scene).get(words)
    return None if move is None else moved(s.kept.mT.contiguous(), move).mT
