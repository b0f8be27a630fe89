"""Regimes built against one defect each: values at the edges of an algorithm, a format or a constant that kernels are written with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flashverify.case.values.few_keys import few_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.values.fill import Fill
    from flashverify.case.values.philox import Reals

    Tensors = dict[str, Reals]

__all__ = ["ADVERSARIAL", "ADVERSARIAL_DOC", "KEY_TILE", "along"]

KEY_TILE = 16
"""Keys per step of `ascending` and `descending`; the smallest tile a kernel can have, so that every tile of any kernel rescales."""

ADVERSARIAL_DOC = {
    "descending": "the maximum falls by about 4 with every 16 keys: no tile but the first rescales, late weights are tiny",
    "spikes": "each row has one key that dominates: the first or last of a tile of 16 to 128, or of all",
    "near-ties-1e4": "all keys within 1 ulp in one channel of a tie for the maximum, about 1e4",
    "weight-ties": "weights relative to the maximum halfway between two numbers of the dtype; v >= 1/8",
    "weight-edges": "weights relative to the maximum near the powers of two at which formats turn subnormal or to zero",
    "sentinels": "all logits below a number that masks are written with, by seed modulo 6: -1e4, -1e5, -1e6, -1e9, -2^60, -2^110",
    "delta-cancels": "v nearly constant and dO nearly parallel to it: dP and delta are large and cancel",
    "subnormal-o": "v around the smallest normal number: O is subnormal in the dtype",
    "shifted": "usual logits around a number far from 0, by seed modulo 12: 8, 32, 64, 96, 128 and 1024, below 0 for odd seeds",
    "few-keys": "each row sees about 16 keys, all others have the weight 0; numbers on a coarse grid; logits near -256 for odd seeds",
}
"""One line per regime."""

_TILES = (16, 32, 48, 64, 80, 128)
_SENTINELS = (14, 17, 20, 30, 60, 110)
"""Exponents one or more above the sentinels in use: finite ones of masks, and where they stand for -inf."""
_SHIFTS = (8, 32, 64, 96, 128, 1024)
_LN2 = float.fromhex("0x1.62e42fefa39efp-1")
_WEIGHTS = (0, 0, 1, 7, 8, 9, 10, 11, 12, 13, 14, 15, 23, 24, 25, 26, 87, 104, 125, 126, 127, 128, 148, 149, 150, 151)
"""Exponents of weights: ends of precision, of the normal and of the subnormal numbers of fp16, bf16 and fp32, and 88 and 104 by
mistake of the base."""


def along(fill: Fill, logit: float, keys: Reals) -> Tensors:
    """Queries along the direction, of length 1 or 1/2, and the given keys, at a common magnitude."""
    for_q, _ = fill.directions()
    power_q, power_k = fill.aligned(logit)
    return {"q": for_q * 2.0 ** (power_q - fill.per_row("q", 0, 1)), "k": keys * 2.0**power_k}


def _exact(values: Reals) -> Reals:
    """The nearest numbers of fp32."""
    with np.errstate(over="ignore"):
        return np.clip(values, -(2.0**127), 2.0**127).astype(np.float32).astype(np.float64)


def _descending(fill: Fill) -> Tensors:
    _, for_k = fill.directions()
    steps = -(-fill.case.seq_k // KEY_TILE)
    levels = (steps - np.arange(fill.case.seq_k) // KEY_TILE)[:, None]
    for_q, power = fill.directions()[0], fill.aligned(4, room=steps.bit_length())
    return {
        "q": for_q * 2.0 ** (power[0] + fill.per_row("q", 0, 1)),
        "k": (for_k * levels + fill.normal("k", -4)) * 2.0 ** power[1],
    }


def _spikes(fill: Fill) -> Tensors:
    case, keys = fill.case, fill.signs("k")
    if not keys.size:
        return {}
    edges = [0, case.seq_k - 1, *(e for tile in _TILES for e in (tile - 1, tile) if e < case.seq_k)]
    chosen = np.array(edges)[(np.arange(case.seq_q) + fill.pick(0, 99)) % len(edges)]
    power_q, power_k = fill.aligned(64)
    rows = np.repeat(keys, case.heads_q // keys.shape[1], axis=1)[:, :, chosen] * fill.sign
    return {"q": rows * 2.0**power_q, "k": keys * 2.0**power_k}


def _close(fill: Fill) -> Tensors:
    keys = np.array(np.broadcast_to(fill.directions()[1], fill.shapes["k"]))
    keys[..., :1] *= 1 + fill.per_row("k", -1, 1) * 2.0**-fill.format.mantissa
    return along(fill, 8192, keys)


def _weight_ties(fill: Fill) -> Tensors:
    """1 - x with odd x in units of a quarter of the spacing below 1: the logit is -(x + x^2 / 2 + ...), from one channel alone."""
    digits = min(fill.format.mantissa, 10)  # fp32 weights are rounded to tf32 if at all
    x = np.maximum(2 * fill.per_row("k", -2, 7) + 1, 0) * 2.0 ** -(digits + 2)
    power = min(max(fill.exponent_of_scale() - 6, -60), 56, fill.format.emax - 1)
    power = max(power, fill.format.emin)
    q, k = np.zeros(fill.shapes["q"]), fill.normal("k")
    q[..., 0] = 2.0**power
    depth = x * (1 + x * (1 / 2 + x * (1 / 3 + x / 4)))
    k[..., :1] = _exact(-fill.sign * depth / (fill.scale * 2.0**power))
    return {"q": q, "k": k, "v": np.abs(fill.normal("v")) + 0.125}


def _weight_edges(fill: Fill) -> Tensors:
    _, for_k = fill.directions()
    power = fill.aligned(1)
    unit = _LN2 / (fill.scale * fill.case.dim_qk * 2.0 ** (power[0] + power[1]))
    depth = np.array(_WEIGHTS, dtype=np.float64)[fill.per_row("k", 0, len(_WEIGHTS) - 1).astype(np.int64)]
    return {
        "q": np.broadcast_to(fill.directions()[0] * 2.0 ** power[0], fill.shapes["q"]),
        "k": _exact(for_k * -depth * unit * 2.0 ** power[1]),
    }


def _sentinels(fill: Fill) -> Tensors:
    keys = np.array(np.broadcast_to(-fill.directions()[1], fill.shapes["k"]))
    keys[..., :1] *= 1 + fill.per_row("k", 0, 2) * 2.0**-fill.format.mantissa
    return along(fill, 2.0 ** (_SENTINELS[fill.case.values.seed % len(_SENTINELS)] + 1), keys)


def _delta_cancels(fill: Fill) -> Tensors:
    batch, heads, _, dim = fill.shapes["v"]
    base = fill.signs("v")[:, :, :1] if fill.case.seq_k else np.ones((batch, heads, 1, dim))
    found = {"v": base + fill.normal("v", -5)}
    if fill.shapes["do"] == fill.case.shape_o:
        found["do"] = 4 * (np.repeat(base, fill.case.heads_q // heads, axis=1) + fill.normal("do", -5))
    return found


def _subnormal_o(fill: Fill) -> Tensors:
    return {"v": fill.normal("v", fill.format.emin - 2)}


def _shifted(fill: Fill) -> Tensors:
    """Half of the channels hold the shift, the others the usual logits."""
    seed, dim = fill.case.values.seed, fill.case.dim_qk
    steady = (dim + 1) // 2
    for_q, for_k = fill.directions()
    shift_q, shift_k = fill.aligned(_SHIFTS[seed // 2 % len(_SHIFTS)] * dim / steady)
    power_q, power_k = fill.spread(3)
    q, k = fill.normal("q", power_q), fill.normal("k", power_k)
    q[..., :steady] = for_q[..., :steady] * 2.0**shift_q
    k[..., :steady] = for_k[..., :steady] * 2.0**shift_k * (-1) ** (seed % 2)
    return {"q": q, "k": k}


ADVERSARIAL: dict[str, Callable[[Fill], Tensors]] = {
    "descending": _descending,
    "spikes": _spikes,
    "near-ties-1e4": _close,
    "weight-ties": _weight_ties,
    "weight-edges": _weight_edges,
    "sentinels": _sentinels,
    "delta-cancels": _delta_cancels,
    "subnormal-o": _subnormal_o,
    "shifted": _shifted,
    "few-keys": few_keys,
}
