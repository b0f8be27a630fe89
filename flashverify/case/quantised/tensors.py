"""The tensors of a quantised k and v, and q."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.quantised.codes import code_format
from flashverify.case.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.case import Case

__all__ = ["QUANTISED_TENSORS"]


def _in_codes(case: Case, name: str) -> bool:
    return case.quantised is not None and name in case.quantised.operands


def _of(name: str, field: str) -> Callable[[Case], Any]:
    def values(case: Case) -> Any:
        from flashverify.case.quantised.values import quantised_arrays

        return getattr(quantised_arrays(case)[name], field) if _in_codes(case, name) else None

    return values


def _codes_shape(name: str) -> Callable[[Case], tuple[int, ...] | None]:
    def shape(case: Case) -> tuple[int, ...] | None:
        if case.quantised is None or not _in_codes(case, name):
            return None
        full = {"q": case.shape_q, "k": case.shape_k, "v": case.shape_v}[name]
        return (*full[:3], full[3] // code_format(case.quantised.codes).per_byte)

    return shape


def _scale_shape(name: str) -> Callable[[Case], tuple[int, ...] | None]:
    def shape(case: Case) -> tuple[int, ...] | None:
        from flashverify.case.quantised.values import scale_shape

        return scale_shape(case, name) if _in_codes(case, name) else None

    return shape


def _specs(name: str, dim: str) -> tuple[TensorSpec, ...]:
    head, place = ("head_q", "row") if name == "q" else ("head_kv", "key")
    axes = ("batch", head, f"{place}_group")
    found = (
        TensorSpec(
            name=f"{name}_codes",
            axes=("batch", head, place, f"{dim}_bytes"),
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
            shape=_scale_shape(name),
            replaceable=True,
        ),
    )
    zero = TensorSpec(name=f"{name}_zero", axes=axes, dtype="int32", values=_of(name, "zero"), replaceable=True)
    return found if name == "q" else (*found, zero)


QUANTISED_TENSORS = (*_specs("k", "dim_qk"), *_specs("v", "dim_v"), *_specs("q", "dim_qk"))
