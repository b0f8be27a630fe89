"""Values of a case whose heads have regimes of their own: every head is filled as a case that has no other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flashverify.case.heads import stored_heads
from flashverify.case.values.fill import Fill

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.case import Case
    from flashverify.case.values.philox import Reals

    Tensors = dict[str, Reals]

__all__ = ["head_by_head"]


def head_by_head(fill: Fill, values: Callable[[Fill], Tensors]) -> Tensors:
    """q, k, v, do as `fill.shapes` says, each stored head of k with its group of query heads.

    A dO of one element is that of the whole case.

    Args:
        fill: of the case.
        values: those of a case of one regime.
    """
    batch, heads = fill.case.batch, stored_heads(fill.case)
    found = {name: np.empty(shape) for name, shape in fill.shapes.items()}
    for number in range(batch * heads):
        entry, head = divmod(number, heads)
        for name, part in values(Fill(_head_alone(fill.case, number, heads))).items():
            size = fill.shapes[name][1] // heads
            if found[name].shape[0] == batch and size:
                found[name][entry, head * size : (head + 1) * size] = part[0]
    if fill.case.grad.do == "expanded":
        found["do"] = fill.normal("do")
    return found


def _head_alone(case: Case, number: int, heads: int) -> Case:
    """The case of one stored head of k, as far as values follow from it: its sequence as long as it is, no modifiers."""
    mask = case.mask
    lengths = None if mask.key_lengths is None else (mask.key_lengths[number // heads],)
    return replace(
        case,
        batch=1,
        heads_q=case.heads_q // heads,
        heads_kv=1,
        mask=replace(type(mask)(), key_lengths=lengths, packed=mask.packed),
        logits=type(case.logits)(),
        quantised=None,
        values=case.values.of_head(number),
    )
