"""Values of k and v under which a row's small weights are all of its result: what a narrow format of weights loses first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flashverify.case.values import philox

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flashverify.case.case import Case

    Reals = NDArray[np.float64]

__all__ = ["with_tails"]

_LEAST, _STEPS = 5.5, 64
_V = 0.125


def with_tails(case: Case, q: Reals, k: Reals, v: Reals) -> dict[str, Reals]:
    """K and v of which the first key of a head leads by 5.5 to 9.5 in the logits of the first row of its first query head and has V = 0.

    All other keys are 0 there and share the weight `exp(-lead)` of the first one, with V >= 1/8. The lead follows the seed.
    """
    if not k.shape[2] or not q.shape[2]:
        return {}
    group = case.heads_q // case.heads_kv
    row = np.nan_to_num(q[:, ::group, 0], nan=0.0, posinf=0.0, neginf=0.0)
    lead = _LEAST + philox.integers(case.values.seed, "tails", (1,), 0, _STEPS)[0] / (_STEPS / 4)
    size = (row * row).sum(-1, keepdims=True) * case.softmax_scale
    keys, values = np.zeros_like(k), np.abs(np.clip(np.nan_to_num(v), -1.0, 1.0)) + _V
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        keys[:, :, 0] = np.nan_to_num(np.where(size == 0, 0.0, row * (lead / size)), nan=0.0, posinf=0.0, neginf=0.0)
    values[:, :, 0] = 0.0
    return {"k": keys, "v": values}
