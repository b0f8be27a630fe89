"""What a kernel may compute in place of each step of dS and of the weights."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.backward.gradient_variants import (
    dp_variants,
    operand_variants,
    row_variants,
    slope_variants,
)
from flashverify.diagnosis.readings.backward.moves import key_moves, row_moves
from flashverify.diagnosis.readings.backward.row_averages import averaged_rows, tiled_deltas
from flashverify.diagnosis.readings.backward.row_products import other_deltas
from flashverify.diagnosis.readings.backward.variants import Option, RowTerms
from flashverify.diagnosis.readings.backward.weight_variants import kept_variants, weight_variants

if TYPE_CHECKING:
    from flashverify.diagnosis.observation import Scene

__all__ = ["DECLARED", "options"]


def options(scene: Scene) -> dict[str, tuple[Option, ...]]:
    """The variants of each step that a case like `scene` may show."""
    found = {
        "weights": weight_variants(scene),
        "kept": kept_variants(scene),
        "dp": dp_variants(scene),
        "rows": chain(row_variants(scene), averaged_rows(scene), other_deltas(scene), tiled_deltas(scene)),
        "slope": slope_variants(scene),
        "row operand": operand_variants(row_moves(scene), "row"),
        "key operand": operand_variants(key_moves(scene), "key"),
        "counts": (),
    }
    return {name: tuple(variants) for name, variants in found.items()}


DECLARED = {
    "weights": Option("", lambda _scene, s: s.p),
    "kept": Option("", lambda _scene, s: s.kept),
    "dp": Option("", lambda _scene, s: s.dp),
    "rows": Option("", lambda _scene, s: RowTerms(s.delta, s.dlse)),
    "slope": Option("", lambda _scene, s: s.slope),
    "row operand": Option("", lambda _scene, _s: None),
    "key operand": Option("", lambda _scene, _s: None),
    "counts": Option("", lambda _scene, s: torch.ones_like(s.p)),
}
"""Each step as it is declared."""
