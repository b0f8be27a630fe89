"""The tensors of a quantised k and v."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.quantised.codes import code_format
from flashverify.case.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.case import Case

__all__ = ["QUANTISED_TENSORS"]


def _of(name: str, field: str) -> Callable[[Case], Any]:
    def values(case: Case) -> Any:
        from flashverify.case.quantised.values import quantised_arrays

        return None if case.quantised is None else getattr(quantised_arrays(case)[name], field)

    return values


def _codes_shape(name: str) -> Callable[[Case], tuple[int, ...] | None]:
    def shape(case: Case) -> tuple[int, ...] | None:
        if case.quantised is None:
            return None
        full = case.shape_k if name == "k" else case.shape_v
        return (*full[:3], full[3] // code_format(case.quantised.codes).per_byte)

    return shape


def _scale_shape(case: Case) -> tuple[int, ...] | None:
    from flashverify.case.quantised.values import scale_shape

    return None if case.quantised is None else scale_shape(case)


def _specs(name: str, dim: str) -> tuple[TensorSpec, ...]:
    axes = ("batch", "head_kv", "key_group")
    return (
        TensorSpec(
            name=f"{name}_codes",
            axes=("batch", "head_kv", "key", f"{dim}_bytes"),
            dtype="uint8",
            values=_of(name, "codes"),
            shape=_codes_shape(name),
            replaceable=True,
        ),
        TensorSpec(
            name=f"{name}_scale",
            axes=axes,
            dtype="fp32",
            values=_of(name, "scale"),
            shape=_scale_shape,
            replaceable=True,
        ),
        TensorSpec(name=f"{name}_zero", axes=axes, dtype="int32", values=_of(name, "zero"), replaceable=True),
    )


QUANTISED_TENSORS = (*_specs("k", "dim_qk"), *_specs("v", "dim_v"))
