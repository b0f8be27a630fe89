"""What the pages of a quantised cache hold: codes, and the scales and zero points that serve keys of one page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flashverify.case.memory.paging import Pool
from flashverify.case.quantised.values import quantised_arrays

if TYPE_CHECKING:
    from flashverify.case.case import Case

__all__ = ["quantised_pools"]


def quantised_pools(case: Case) -> dict[str, Pool]:
    """By the names of `Pages`. Scales of a head or of the tensor serve more than a page and lie in none."""
    assert case.quantised is not None
    arrays, found = quantised_arrays(case), {}
    for name in ("k", "v"):
        found[name] = Pool(values=arrays[name].codes, dtype="uint8")
        if case.quantised.scales_in_pages:
            keys = case.quantised.keys_per_scale(case.seq_k)
            scale = arrays[name].scale.astype(np.float32).view(np.uint32)
            found[f"{name}_scale"] = Pool(values=scale, dtype="fp32", keys=keys)
            zero = arrays[name].zero
            if zero is not None:
                found[f"{name}_zero"] = Pool(values=zero.view(np.uint32), dtype="int32", keys=keys)
    return found
