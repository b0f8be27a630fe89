"""The one table of what subjects return; what runs, compares, reorders and reports outputs reads it. Needs no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

__all__ = [
    "BACKWARD",
    "COMMON_GRADIENTS",
    "FORWARD",
    "INPUT_GRADIENTS",
    "KERNELS",
    "OF_DS",
    "OUTPUTS",
    "OutputSpec",
    "expected_shapes",
    "output",
    "pinned_rows",
    "rows_reach",
]

Axis = Literal["batch", "head_q", "head_kv", "row", "key", "dim_qk", "dim_v", "bucket"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec:
    """One output.

    Attributes:
        name: in the text of verdicts and records, and of the fields of `Forward` and `Gradients`.
        axes: of its tensor. The gradient of an optional tensor has size 1 where that tensor is shared along the axis.
        stage: the pass that returns it.
        computed_with: the kernel that makes it: a defect of one of its outputs is likely one of the others.
        gradient_of: the tensor of `Problem` whose gradient and whose shape it is; None for what is no gradient of an input.
        optional: not every problem has that tensor.
        of_ds: it is linear in dS, the gradient of the logits, and in nothing else.
        dtype: `case` for that of the inputs.
        empty_row: what it holds in a row that sees no key, or the field of `Contract` that says so; None for what has no rows.
    """

    name: str
    axes: tuple[Axis, ...]
    stage: Literal["forward", "backward"]
    computed_with: Literal["forward", "dq", "dkdv"]
    gradient_of: str | None = None
    optional: bool = False
    of_ds: bool = False
    dtype: Literal["case", "fp32"] = "case"
    empty_row: float | str | None = None

    def dtype_of(self, case_dtype: str) -> str:
        """Its dtype, given that of the inputs."""
        return case_dtype if self.dtype == "case" else self.dtype

    def axis(self, *names: str) -> int | None:
        """Where the first of these axes stands; None where it has none of them."""
        return next((number for number, axis in enumerate(self.axes) if axis in names), None)

    @property
    def along(self) -> str | None:
        """`row` or `key`, of which each element has one; None for sums over both and for what has both."""
        found = [axis for axis in self.axes if axis in ("row", "key")]
        return found[0] if len(found) == 1 else None

    @property
    def channels(self) -> bool:
        """Whether it is laid out as q, k, v and O are."""
        return self.axes[-1] in ("dim_qk", "dim_v")

    def sums_pairs(self, problem: Any) -> bool:
        """Whether an element sums dS over several sequences, heads or places, in an order that the shape of the problem may change."""
        if not (self.of_ds and self.optional):
            return False
        return "key" not in self.axes or getattr(problem, self.gradient_of or "").shape[:2] != problem.q.shape[:2]

    def given(self, problem: Any) -> bool:
        """Whether a problem, or anything with its tensors as attributes, has what it is the gradient of."""
        return not self.optional or getattr(problem, self.gradient_of or "") is not None


_TABLE = (
    OutputSpec(
        name="o",
        axes=("batch", "head_q", "row", "dim_v"),
        stage="forward",
        computed_with="forward",
        empty_row="empty_row_o",
    ),
    OutputSpec(
        name="lse",
        axes=("batch", "head_q", "row"),
        stage="forward",
        computed_with="forward",
        dtype="fp32",
        empty_row="empty_row_lse",
    ),
    OutputSpec(
        name="delta",
        axes=("batch", "head_q", "row"),
        stage="backward",
        computed_with="dq",
        dtype="fp32",
        empty_row=0.0,
    ),
    OutputSpec(
        name="dq",
        axes=("batch", "head_q", "row", "dim_qk"),
        stage="backward",
        computed_with="dq",
        gradient_of="q",
        of_ds=True,
        empty_row=0.0,
    ),
    OutputSpec(
        name="dk",
        axes=("batch", "head_kv", "key", "dim_qk"),
        stage="backward",
        computed_with="dkdv",
        gradient_of="k",
        of_ds=True,
    ),
    OutputSpec(
        name="dv",
        axes=("batch", "head_kv", "key", "dim_v"),
        stage="backward",
        computed_with="dkdv",
        gradient_of="v",
    ),
    OutputSpec(
        name="dbias",
        axes=("batch", "head_q", "row", "key"),
        stage="backward",
        computed_with="dq",
        gradient_of="bias",
        of_ds=True,
        optional=True,
    ),
    OutputSpec(
        name="dsink",
        axes=("head_q",),
        stage="backward",
        computed_with="dq",
        gradient_of="sink",
        optional=True,
        dtype="fp32",
    ),
    OutputSpec(
        name="drelative_bias",
        axes=("head_q", "bucket"),
        stage="backward",
        computed_with="dq",
        gradient_of="relative_bias",
        of_ds=True,
        optional=True,
        dtype="fp32",
    ),
)

_SPECS = {spec.name: spec for spec in _TABLE}
OUTPUTS = tuple(_SPECS)
"""Every name, in the order in which a reader asks for them."""
FORWARD = tuple(spec.name for spec in _TABLE if spec.stage == "forward")
BACKWARD = tuple(spec.name for spec in _TABLE if spec.stage == "backward")
INPUT_GRADIENTS = tuple(spec.name for spec in _TABLE if spec.gradient_of is not None)
"""What can be asked for by itself."""
OF_DS = tuple(spec.name for spec in _TABLE if spec.of_ds)
"""What a wrong dS makes wrong."""
COMMON_GRADIENTS = tuple(spec.name for spec in _TABLE if spec.stage == "backward" and not spec.optional)
"""Of every problem with a backward."""
KERNELS = tuple(
    tuple(spec.name for spec in _TABLE if spec.computed_with == kernel)
    for kernel in dict.fromkeys(spec.computed_with for spec in _TABLE)
)
"""The outputs that are made together."""


def output(name: str) -> OutputSpec:
    """The output of that name.

    Raises:
        KeyError: there is none.
    """
    return _SPECS[name]


def expected_shapes(problem: Any) -> dict[str, tuple[int, ...]]:
    """Shape of every output that a problem, or anything with its tensors as attributes, has."""
    (batch, heads, rows, _), dim_v = problem.q.shape, problem.v.shape[3]
    sizes = {"batch": batch, "head_q": heads, "row": rows, "dim_v": dim_v}
    return {
        spec.name: tuple(sizes[axis] for axis in spec.axes)
        if spec.gradient_of is None
        else tuple(getattr(problem, spec.gradient_of).shape)
        for spec in _TABLE
        if spec.given(problem)
    }


def pinned_rows(
    empty: torch.Tensor, *, empty_row_o: float | None = 0.0, empty_row_lse: float | None = -math.inf
) -> dict[str, tuple[torch.Tensor, float]]:
    """What outputs hold in rows that see no key: per output the elements, bool, broadcastable to it, and their value.

    Args:
        empty: bool `[B, Hq, Sq]`.
        empty_row_o: of O, see `Contract`; None pins nothing.
        empty_row_lse: of the LSE, likewise.
    """
    declared = {"empty_row_o": empty_row_o, "empty_row_lse": empty_row_lse}
    values = {spec: declared[spec.empty_row] if isinstance(spec.empty_row, str) else spec.empty_row for spec in _TABLE}
    return {
        spec.name: (empty.unsqueeze(-1) if spec.channels else empty, value)
        for spec, value in values.items()
        if value is not None
    }


def rows_reach(rows: torch.Tensor, problem: Any) -> dict[str, torch.Tensor]:
    """The elements of every output of the backward that sums over some rows: bool, broadcastable to the output.

    Args:
        rows: bool `[B, Hq, Sq or 1]`.
        problem: anything with the tensors of a problem as attributes.
    """
    return {name: _reach(rows, _SPECS[name], problem) for name in BACKWARD if _SPECS[name].given(problem)}


def _reach(rows: torch.Tensor, spec: OutputSpec, problem: Any) -> torch.Tensor:
    shape = None if spec.gradient_of is None else getattr(problem, spec.gradient_of).shape
    kept: list[int] = []
    for number, axis in enumerate(("batch", "head_q", "row")):
        place = spec.axis(axis, *(("head_kv",) if axis == "head_q" else ()))
        if place is None or (shape is not None and shape[place] == 1):
            rows = rows.any(number, keepdim=True)
        elif spec.axes[place] == "head_kv":
            heads = problem.k.shape[1]
            group = rows.shape[1] // heads
            rows = rows.reshape(rows.shape[0], heads, group, rows.shape[2]).any(2)
        if place is not None:
            kept.append(rows.shape[number])
    return rows.reshape(kept + [1] * (len(spec.axes) - len(kept)))
