"""A model: one step that is computed with fewer bits than declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.precision.steps import Steps

__all__ = ["Model"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """One step that is computed otherwise than declared.

    Attributes:
        words: what is done to what, to follow "errors look like".
        change: the steps, given the declared ones.
        outputs: those that it reaches.
        step: the field of `Steps` that it is about, or a name for several; a form may declare it.
        how: is done to it, by its words.
        needs: the field of `Inputs` without which it changes nothing; empty for none.
        tiled: it depends on the tiles.
        addend: it changes what is summed over tiles; where one tile is all, that is another step.
        several: it changes several steps; one that changes a single step is named first.
    """

    words: str
    change: Callable[[Steps], Steps]
    outputs: tuple[str, ...]
    step: str = ""
    how: str = ""
    needs: str = ""
    tiled: bool = False
    addend: bool = False
    several: bool = False

    def acts_on(self, scene: Scene) -> bool:
        """Whether the problem of a run has what the model is about."""
        if not self.needs:
            return True
        given = scene.problem.slopes if self.needs == "slopes" else getattr(scene.inputs, self.needs)
        return given is not None and not (isinstance(given, tuple | float) and not given)
