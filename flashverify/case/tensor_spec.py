"""What there is to know about an input tensor of a problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.case import Case

__all__ = ["TensorSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input tensor.

    Attributes:
        name: of the field of `Problem`.
        axes: names of the axes. `batch` (or `sequence`, an entry per sequence), `head_q`, `head_kv`, `row` and `key` mean those of
            the case; an axis of batches or heads may have size 1 where the tensor is one for all. Rows and keys outside the
            declared lengths hold the padding, and so do entries of `key_group` and `row_group` that serve such keys or rows alone. Any other name is an axis of the tensor's own.
        dtype: `case` is that of q; such a tensor has four axes and lies as `case.storage` says. `fp32` is contiguous, or every second
            element where the storage is strided; `int32` and `bool` are contiguous. `uint8` is codes of four axes, which lie as
            `case.storage` says.
        values: of a case, as an array of float64, int32 or bool or a tuple of integers; None where the case has no such tensor.
            For q, k, v and dO, whose values the regime gives, it is None itself.
        shape: of a float tensor in a case, without drawing its values; None where the case has none.
        editable: whether `edits` may name it.
        finite: whether its edits are finite: what a non-finite element reaches is not specified.
        replaceable: whether it may hold other values in the same problem; ALiBi's slopes, lengths and patterns follow from the case.
    """

    name: str
    axes: tuple[str, ...]
    dtype: Literal["case", "fp32", "int32", "bool", "uint8"]
    values: Callable[[Case], Any] | None = None
    shape: Callable[[Case], tuple[int, ...] | None] | None = None
    editable: bool = False
    finite: bool = False
    replaceable: bool = False

    @property
    def is_float(self) -> bool:
        """Whether its elements are numbers that regimes and edits fill."""
        return self.dtype in ("case", "fp32")

    def axis(self, *names: str) -> int | None:
        """Index of the first axis with one of these names, or None."""
        return next((number for number, name in enumerate(self.axes) if name in names), None)

    def dtype_in(self, case: Case) -> str:
        """The name of its dtype in `case`."""
        return case.dtype if self.dtype == "case" else self.dtype
