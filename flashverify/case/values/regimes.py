"""The value regimes: what q, k, v and dO look like. A regime returns the tensors that it shapes; the rest is `normal`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flashverify.case.values.adversarial import ADVERSARIAL, ADVERSARIAL_DOC, KEY_TILE, along
from flashverify.case.values.fill import ceil_log2
from flashverify.case.values.mixed import head_by_head

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.values.fill import Fill
    from flashverify.case.values.philox import Reals

    Tensors = dict[str, Reals]

__all__ = ["KEY_TILE", "REGIME_DOC", "regime_values"]

REGIME_DOC = {
    "zeros": "q, k, v are 0, dO is 1: uniform weights, dV their sum",
    "integers": "small exact integers, -2 to 2",
    "normal": "nearly normal, sigma 1.01, at most 3.5",
    "tiny": "q, k, v a few powers of two above the smallest normal number; dO normal",
    "subnormal": "every value subnormal in the dtype",
    "large": "q, k near the square root of the largest finite value, v near it over the number of keys; nothing overflows",
    "q-zero": "q is 0: the mean of v, flat logits over long rows",
    "v-constant": "all keys share one v per head: O is that v whatever the weights",
    "v-is-k": "v is k, cut or filled with zeros to its head dim",
    "v-positive": "v >= 1/8: a lost or doubled weight cannot cancel",
    "v-cancelling": "pairs of equal keys with v = +L + small, -L + small: the large part cancels exactly",
    "one-hot": "one key per sequence and head dominates with a logit near 64",
    "duplicate-keys": "every key stands four times, far apart, with its own v",
    "ties": "half of the keys tie exactly for the maximum, about 16; v >= 1/8",
    "near-ties": "all keys within 2 ulp in one channel of a tie for the maximum",
    "ascending": "the maximum rises by about 4 with every 16 keys: every tile rescales",
    "negative": "all logits near -256: LSE too, and exp(0 - LSE) of an unmasked column overflows",
    "outlier": "one channel of k and one of v 1024 times larger",
    "logits-1e2": "largest logits near 1e2",
    "logits-1e3": "largest logits near 1e3",
    "logits-1e4": "largest logits near 1e4",
    "logits-1e5": "largest logits near 1e5",
    **ADVERSARIAL_DOC,
    "overflow": "on the edge of overflow, by seed modulo 3: v (unnormalised O), dO (dS, dP), or q and k (S)",
}
"""One line per regime. Magnitudes of logits include the case's scale, as far as the dtype can hold the q and k needed."""


def regime_values(fill: Fill) -> Tensors:
    """q, k, v, do as `fill.shapes` says, float64; magnitudes beyond the largest finite value are cut to it."""
    return head_by_head(fill, _of_one_regime) if fill.case.values.mixed else _of_one_regime(fill)


def _of_one_regime(fill: Fill) -> Tensors:
    shaped = _REGIMES[fill.case.values.regime](fill)
    limit = fill.format.max
    return {name: np.clip(shaped[name], -limit, limit) if name in shaped else fill.normal(name) for name in fill.shapes}


def _zeros(fill: Fill) -> Tensors:
    return {n: np.full(s, 1.0 if n == "do" else 0.0) for n, s in fill.shapes.items()}


def _integers(fill: Fill) -> Tensors:
    return {name: fill.integers(name, -2, 2) for name in fill.shapes}


def _tiny(fill: Fill) -> Tensors:
    return {name: fill.normal(name, fill.format.emin + 6) for name in ("q", "k", "v")}


def _subnormal(fill: Fill) -> Tensors:
    limit = 2**fill.format.mantissa - 1
    return {name: fill.integers(name, -limit, limit) * fill.format.min_subnormal for name in fill.shapes}


def _large(fill: Fill) -> Tensors:
    power_v = fill.format.emax - 3 - ceil_log2(fill.case.seq_k)
    if fill.format.emax < 127:
        power = 6
    else:  # |scale| * dim * 3.5**2 * 2**(2 power) stays below 2**126, scale above 1 included
        power = (122 - ceil_log2(fill.case.dim_qk) - ceil_log2(max(int(fill.scale), 1) + 1)) // 2
    return {n: fill.normal(n, p) for n, p in (("q", power), ("k", power), ("v", power_v), ("do", 4 - power_v))}


def _q_zero(fill: Fill) -> Tensors:
    return {"q": np.zeros(fill.shapes["q"])}


def _v_constant(fill: Fill) -> Tensors:
    v = fill.normal("v")
    return {"v": np.broadcast_to(v[:, :, :1], v.shape)}


def _v_is_k(fill: Fill) -> Tensors:
    k, v = fill.normal("k"), np.zeros(fill.shapes["v"])
    shared = min(k.shape[3], v.shape[3])
    v[..., :shared] = k[..., :shared]
    return {"k": k, "v": v}


def _v_positive(fill: Fill) -> Tensors:
    return {"v": np.abs(fill.normal("v")) + 0.125}


def _v_cancelling(fill: Fill) -> Tensors:
    seq = fill.case.seq_k
    alternating = np.where(np.arange(seq) % 2 == 0, 1.0, -1.0) * (np.arange(seq) < seq // 2 * 2)
    v = fill.integers("v", -8, 8) * 0.25 + alternating[:, None] * 2.0 ** (fill.format.mantissa - 2)
    return {"k": fill.normal("k")[:, :, np.arange(seq) // 2], "v": v}


def _one_hot(fill: Fill) -> Tensors:
    for_q, for_k = fill.directions()
    power_q, power_k = fill.aligned(64)
    k = fill.normal("k", -3)
    picks = fill.per_head("k", 0, 2**31 - 1).astype(np.int64)
    for b, first, length in fill.sequences():
        for h in range(k.shape[1] if length else 0):
            k[b, h, first + int(picks[b, h, 0, 0]) % length] = for_k[b, h, 0]
    return {"q": (for_q + fill.normal("q", -3)) * 2.0**power_q, "k": k * 2.0**power_k}


def _duplicate_keys(fill: Fill) -> Tensors:
    return {"k": fill.normal("k")[:, :, np.arange(fill.case.seq_k) % max(fill.case.seq_k // 4, 1)]}


def _ties(fill: Fill) -> Tensors:
    _, for_k = fill.directions()
    top = fill.per_row("k", 0, 1) > 0
    top[:, :, [0, -1] if fill.case.seq_k else []] = True
    return along(fill, 16, np.where(top, for_k, fill.signs("k"))) | _v_positive(fill)


def _near_ties(fill: Fill) -> Tensors:
    _, for_k = fill.directions()
    keys = np.array(np.broadcast_to(for_k, fill.shapes["k"]))
    keys[..., :1] *= 1 + fill.per_row("k", -2, 2) * 2.0**-fill.format.mantissa
    return along(fill, 16, keys)


def _ascending(fill: Fill) -> Tensors:
    for_q, for_k = fill.directions()
    levels = (np.arange(fill.case.seq_k) // KEY_TILE + 1.0)[:, None]
    power_q, power_k = fill.aligned(4, room=ceil_log2(fill.case.seq_k // KEY_TILE + 2))
    return {
        "q": for_q * 2.0 ** (power_q + fill.per_row("q", 0, 1)),
        "k": (for_k * levels + fill.normal("k", -4)) * 2.0**power_k,
    }


def _negative(fill: Fill) -> Tensors:
    for_q, for_k = fill.directions()
    power_q, power_k = fill.aligned(256)
    q, k = fill.normal("q", -3) + for_q, fill.normal("k", -3) - for_k
    return {"q": q * 2.0**power_q, "k": k * 2.0**power_k}


def _outlier(fill: Fill) -> Tensors:
    tensors = {"k": fill.normal("k"), "v": fill.normal("v")}
    for name, values in tensors.items():
        channel = fill.per_head(name, 0, values.shape[3] - 1)
        values *= np.where(np.arange(values.shape[3]) == channel, 1024.0, 1.0)
    return tensors


def _logits(logit: float) -> Callable[[Fill], Tensors]:
    def regime(fill: Fill) -> Tensors:
        power_q, power_k = fill.spread(logit)
        return {"q": fill.normal("q", power_q), "k": fill.normal("k", power_k)}

    return regime


def _overflow(fill: Fill) -> Tensors:
    wide, emax = fill.format.emax == 127, fill.format.emax
    keys, dim, dim_v = (ceil_log2(n) for n in (fill.case.seq_k, fill.case.dim_qk, fill.case.dim_v))
    edge = fill.case.values.seed % 3
    if edge == 2:  # 16 bit: q and k at the largest finite value; else sum |q| |k| on either side of 2**127
        power = (126 - dim) // 2 if wide else emax
        shift = fill.per_head("k", -3, 1) if wide else 0.0
        return {"q": fill.signs("q") * (2.0**power), "k": fill.signs("k") * 2.0 ** (power + shift)}
    power_q, power_k = fill.spread(1)
    flat = {"q": fill.normal("q", power_q), "k": fill.normal("k", power_k)}
    if edge == 0:  # v at the largest finite value; else sums of it over the keys on either side of 2**127
        shift = fill.per_head("v", 0, keys + 1) if wide else 0.0
        v = fill.signs("v")[:, :, :1] * fill.format.max * 2.0 ** -(shift + fill.per_row("v", 0, 1))
        return flat | {"v": v, "do": fill.normal("do", max(4 - emax - dim_v, fill.format.emin))}
    if wide:  # sum |dO| |V| on either side of 2**127
        return flat | {"v": fill.normal("v", 60), "do": fill.normal("do", 66 - dim_v + fill.pick(-3, 0))}
    power_do = min(7 + keys - dim_v // 2 + fill.pick(-3, 0), 14)  # dS, a weight of 1 / keys times dP, near 2**15
    return flat | {"v": fill.normal("v", 8), "do": fill.normal("do", power_do)}


_REGIMES: dict[str, Callable[[Fill], Tensors]] = {
    "zeros": _zeros,
    "integers": _integers,
    "normal": lambda _: {},
    "tiny": _tiny,
    "subnormal": _subnormal,
    "large": _large,
    "q-zero": _q_zero,
    "v-constant": _v_constant,
    "v-is-k": _v_is_k,
    "v-positive": _v_positive,
    "v-cancelling": _v_cancelling,
    "one-hot": _one_hot,
    "duplicate-keys": _duplicate_keys,
    "ties": _ties,
    "near-ties": _near_ties,
    "ascending": _ascending,
    "negative": _negative,
    "outlier": _outlier,
    "logits-1e2": _logits(1e2),
    "logits-1e3": _logits(1e3),
    "logits-1e4": _logits(1e4),
    "logits-1e5": _logits(1e5),
    **ADVERSARIAL,
    "overflow": _overflow,
}
