"""From a case to the bits of its tensors: regime, one rounding, edits."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np

from flashverify.case.case import Storage
from flashverify.case.values import philox
from flashverify.case.values.bits import to_bits
from flashverify.case.values.fill import Fill
from flashverify.case.values.modifiers import bias_values, sink_values, slope_values
from flashverify.case.values.regimes import regime_values

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.values.bits import Bits

__all__ = ["tensor_bits"]


def tensor_bits(case: Case) -> dict[str, Bits]:
    """Bit patterns of q, k, v and, where the case has them, do, dlse, bias, slopes and sink.

    Returns:
        Read-only arrays of uint16 or uint32 (dlse `[B, Hq, Sq]`, slopes and sink `[Hq]`: fp32). k and v have one head where they are expanded:
        an edit of any head then is an edit of the shared one. do has the shape `[1, 1, 1, 1]` where it is expanded.
        They do not depend on the layout, gaps, offset, padding or launch parameters of the case; those of the last few
        cases are kept.
    """
    return _tensor_bits(dataclasses.replace(case, storage=Storage(expand=case.storage.expand), launch=()))


@functools.lru_cache(maxsize=4)
def _tensor_bits(case: Case) -> dict[str, Bits]:
    fill = Fill(case)
    values = regime_values(fill)
    if not case.grad.backward:
        del values["do"]
    elif case.grad.do == "zero":
        values["do"] = np.zeros(fill.shapes["do"])
    bits = {name: to_bits(array, case.dtype) for name, array in values.items()}
    if case.grad.backward and case.grad.dlse:
        bits["dlse"] = to_bits(philox.normal(case.values.seed, "dlse", case.shape_o[:3]), "fp32")
    if case.logits.bias is not None:
        bits["bias"] = to_bits(bias_values(case), case.dtype)
    if case.logits.alibi:
        bits["slopes"] = to_bits(slope_values(case), "fp32")
    if case.logits.sink:
        bits["sink"] = to_bits(sink_values(case), "fp32")
    for edit in case.values.edits:
        if edit.tensor in bits:
            edited = bits[edit.tensor]
            index = tuple(min(i, n - 1) for i, n in zip(edit.index, edited.shape, strict=False))
            dtype = "fp32" if edit.tensor in ("sink", "slopes") else case.dtype
            edited[index] = to_bits(np.array([edit.value], dtype=np.float64), dtype)[0]
    for stored in bits.values():
        stored.flags.writeable = False
    return bits
