"""Gradients that are the declared ones of another row, key, head or sequence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.backward.moves import key_moves, moved, row_moves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.expected import Expected
    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.moves import Move

__all__ = ["Elsewhere", "places_elsewhere"]

_NAMES = {"dq": "dQ of row i", "dk": "dK of key j", "dv": "dV of key j"}


class Elsewhere:
    """An output in which every place holds what is declared of another one.

    Args:
        output: `dq`, `dk` or `dv`.
        place: the words of the other place, as in `moves`.
    """

    def __init__(self, output: str, place: str) -> None:
        self.output, self.place = output, place

    def alternative(self, scene: Scene) -> Alternative | None:
        """What it expects of the output on a case; None where the case has not that place."""
        move = (row_moves if self.output == "dq" else key_moves)(scene).get(self.place)
        if move is None or scene.inputs.do is None:
            return None

        def finish(values: Expectations) -> Expectations:
            found = dict(values)
            if self.output in found:
                found[self.output] = self._of(found[self.output], move, scene.group)
            return found

        return Alternative(finish=finish)

    def _of(self, x: Expected, move: Move, group: int) -> Expected:
        def there(tensor: Tensor) -> Tensor:
            if self.output == "dq":
                return moved(tensor, move)
            return moved(tensor.repeat_interleave(group, 1), move)[:, ::group]

        kept = {name: there(part) for name in ("nan", "lost", "anything") if (part := getattr(x, name)) is not None}
        moved_parts = {"value": there(x.value), "total": there(x.total), "overflow": there(x.overflow)}
        return replace(x, strict=None, other=None, **moved_parts, **kept)

    def words(self) -> str:
        """A sentence without its full stop."""
        return f"{_NAMES[self.output]} is the right one of {self.place}"


def places_elsewhere(scene: Scene, output: str) -> Iterator[Elsewhere]:
    """Those that give the output of a case."""
    if output not in _NAMES:
        return
    for words in row_moves(scene) if output == "dq" else key_moves(scene):
        found = Elsewhere(output, words)
        alternative = found.alternative(scene)
        if alternative is not None and scene.agrees(alternative, frozenset({output})):
            yield found
