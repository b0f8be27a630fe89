"""Rows that give all their weight to a few of many keys, on a grid so coarse that dots of the inputs are exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flashverify.case.values import philox

if TYPE_CHECKING:
    from flashverify.case.values.fill import Fill
    from flashverify.case.values.philox import Reals

__all__ = ["few_keys"]

_GRID = 16.0
_KEYS, _ROWS = 16, 16
"""Keys that a row sees with a weight, and rows that give a key one, about."""
_APART = 256.0
"""Logit by which a key of another cluster lies lower: its weight is 0 in every dtype. Odd seeds have all logits as far below 0."""
_PLAIN = 3
"""Channels for what is no bit of a cluster: dead keys, dead rows, and the common logit."""


def few_keys(fill: Fill) -> dict[str, Reals]:
    """Rows and keys belong to clusters, and a row sees the keys of its own.

    Where keys are many, most belong to none. Where rows are many, most see the first key alone. The number of a cluster is written in pairs of channels: a bit
    of q is (a, 0) or (0, a), and the same bit of k (0, -b) or (-b, 0), so that equal bits add nothing to a logit.
    """
    case = fill.case
    values = {name: np.rint(fill.normal(name) * _GRID) / _GRID for name in fill.shapes}
    q, k = values["q"], values["k"]
    bits = min((min(case.seq_q, case.seq_k) // 8).bit_length() - 1, (case.dim_qk - _PLAIN) // 4)
    if bits < 0:
        return values
    power_q, power_k = fill.aligned(_APART * case.dim_qk)
    a, b = 2.0**power_q, fill.sign * 2.0**power_k
    clusters = 2**bits
    live_rows, row = _members(fill, "q", clusters, _ROWS)
    live_keys, key = _members(fill, "k", clusters, _KEYS)
    first = (np.arange(case.seq_k) == 0) & ~live_rows.all()
    live_keys = live_keys & ~first
    q[..., 0], k[..., 0] = np.where(live_rows, a, 0.0), np.where(live_keys, 0.0, -b)
    q[..., 1], k[..., 1] = np.where(live_rows, 0.0, a), np.where(first, 0.0, -b)
    q[..., 2], k[..., 2] = a * (case.values.seed % 2), -b
    for bit in range(bits):
        at = slice(_PLAIN + 2 * bit, _PLAIN + 2 * bit + 2)
        q[..., at] = a * (_digit(row, bit) * live_rows[..., None])
        k[..., at] = -b * (1.0 - _digit(key, bit))
    return values


def _members(fill: Fill, name: str, clusters: int, many: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of q or of k belong to a cluster, bool `[B, H, S]`, so that each has about as many as it should; and the cluster of each."""
    shape = fill.shapes[name][:3]
    seed = fill.case.values.seed
    of = max(shape[2] // (many * clusters), 1)
    live = philox.integers(seed, f"{name}/live", shape, 0, of - 1) == 0
    return live, philox.integers(seed, f"{name}/cluster", shape, 0, clusters - 1).astype(np.int64)


def _digit(number: np.ndarray, bit: int) -> Reals:
    """(1, 0) for a bit that is 0, (0, 1) for one that is 1: `[B, H, S, 2]`."""
    found = (number >> bit) & 1
    return np.stack([1.0 - found, 1.0 * found], axis=-1)
