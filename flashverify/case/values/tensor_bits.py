"""From a case to the bits of its tensors: regime, one rounding, edits."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np

from flashverify.case.case import Storage
from flashverify.case.shared_kv import shares
from flashverify.case.tensors import TENSORS
from flashverify.case.values.bits import to_bits
from flashverify.case.values.fill import Fill
from flashverify.case.values.regimes import regime_values

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.values.bits import Bits

__all__ = ["tensor_bits"]


def tensor_bits(case: Case) -> dict[str, Bits]:
    """Bit patterns of every float tensor that the case has, by name.

    Returns:
        Read-only arrays of uint16 or uint32, shaped and typed as `tensors` says. k and v have one head where they are expanded:
        an edit of any head then is an edit of the shared one. do has the shape `[1, 1, 1, 1]` where it is expanded.
        They do not depend on the layout, gaps, offset, padding or launch parameters of the case; those of the last few
        cases are kept.
    """
    return _tensor_bits(
        dataclasses.replace(case, storage=Storage(expand=case.storage.expand, kv=case.storage.kv), launch=())
    )


@functools.lru_cache(maxsize=4)
def _tensor_bits(case: Case) -> dict[str, Bits]:
    fill = Fill(case)
    values = regime_values(fill)
    if not case.grad.backward:
        del values["do"]
    elif case.grad.do == "zero":
        values["do"] = np.zeros(fill.shapes["do"])
    for name, spec in TENSORS.items():
        if spec.is_float and spec.values is not None and spec.shape is not None and spec.shape(case) is not None:
            values[name] = spec.values(case)
    bits = {name: to_bits(array, TENSORS[name].dtype_in(case)) for name, array in values.items()}
    for edit in case.values.edits:
        if edit.tensor in bits:
            edited = bits[edit.tensor]
            index = tuple(min(i, n - 1) for i, n in zip(edit.index, edited.shape, strict=False))
            value = np.array([edit.value], dtype=np.float64)
            edited[index] = to_bits(value, TENSORS[edit.tensor].dtype_in(case))[0]
    if shares(case):
        bits["v"] = bits["k"][..., : case.dim_v]
    for stored in bits.values():
        stored.flags.writeable = False
    return bits
