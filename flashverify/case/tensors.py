"""The one table of the input tensors of a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.masks.mask import PARTS
from flashverify.case.modifiers.logits import MODIFIERS
from flashverify.case.quantised.tensors import QUANTISED_TENSORS
from flashverify.case.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from flashverify.case.case import Case

__all__ = ["EDITABLE", "MODIFYING", "PER_PAIR", "TENSORS", "TensorSpec"]


def _dlse(case: Case) -> Any:
    from flashverify.case.values import philox

    return philox.normal(case.values.seed, "dlse", case.shape_o[:3])


_OPERANDS = (
    TensorSpec(
        name="q",
        axes=("batch", "head_q", "row", "dim_qk"),
        dtype="case",
        shape=lambda case: case.shape_q,
        editable=True,
        replaceable=True,
    ),
    TensorSpec(
        name="k",
        axes=("batch", "head_kv", "key", "dim_qk"),
        dtype="case",
        shape=lambda case: case.shape_k,
        editable=True,
        replaceable=True,
    ),
    TensorSpec(
        name="v",
        axes=("batch", "head_kv", "key", "dim_v"),
        dtype="case",
        shape=lambda case: case.shape_v,
        editable=True,
        replaceable=True,
    ),
    TensorSpec(
        name="do",
        axes=("batch", "head_q", "row", "dim_v"),
        dtype="case",
        shape=lambda case: case.shape_o,
        editable=True,
        replaceable=True,
    ),
    TensorSpec(
        name="dlse",
        axes=("batch", "head_q", "row"),
        dtype="fp32",
        values=_dlse,
        shape=lambda case: case.shape_o[:3] if case.grad.backward and case.grad.dlse else None,
        replaceable=True,
    ),
)

_OF_PARTS = (
    *(spec for part in PARTS for spec in part.tensors),
    *(spec for modifier in MODIFIERS for spec in modifier.tensors),
)

TENSORS: dict[str, TensorSpec] = {spec.name: spec for spec in (*_OPERANDS, *_OF_PARTS, *QUANTISED_TENSORS)}
"""Every input tensor by the name of its field of `Problem`: operands and gradients, then those of the mask, of the modifiers and of quantised operands."""

EDITABLE: dict[str, TensorSpec] = {
    spec.name: spec for spec in (*_OPERANDS, *sorted(_OF_PARTS, key=lambda spec: spec.name)) if spec.editable
}
"""Those whose elements a case may overwrite."""

MODIFYING = tuple(spec.name for modifier in MODIFIERS for spec in modifier.tensors if spec.is_float)
"""Those that a modifier adds to the logits."""

PER_PAIR = tuple(name for name, spec in TENSORS.items() if spec.axes[2:] == ("row", "key"))
"""Those with an element for each pair of a row and a key, which is their last axis."""
