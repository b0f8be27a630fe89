"""Every result of the exact oracle at the working precision of mpmath."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import mpmath
import numpy as np
from mpmath import mp

if TYPE_CHECKING:
    from flashverify_oracles._exact_numbers import Array, Numbers
    from flashverify_oracles._exact_rows import Inputs, Row


def evaluate(inputs: Inputs, rows: list[Row]) -> dict[str, Array]:
    """Every result, by name. A sink is one more column of a row, with V = 0 and so dP = 0."""
    B, Hq, Hkv, Sq, Sk, D, Dv = inputs.sizes
    out = {"o": _full((B, Hq, Sq, Dv), mp.zero), "lse": _full((B, Hq, Sq), -mp.inf)}
    if inputs.do is not None:
        out |= {"delta": _full((B, Hq, Sq), mp.zero), "dq": _full((B, Hq, Sq, D), mp.zero)}
        out |= {"dk": _full((B, Hkv, Sk, D), mp.zero), "dv": _full((B, Hkv, Sk, Dv), mp.zero)}
    if inputs.bias_shape is not None:
        out["dbias"] = _full((math.prod(inputs.bias_shape),), mp.zero)
    if inputs.do is not None and inputs.sink is not None:
        out["dsink"] = _full((Hq,), mp.zero)
    if inputs.buckets is not None:
        out["drelative_bias"] = _full((Hq, inputs.bucket_count), mp.zero)
    for row in rows:
        logits, p = _forward(inputs, row, out)
        if inputs.do is not None:
            _backward(inputs, inputs.do, row, logits, p, out)
    if inputs.bias_shape is not None:
        out["dbias"] = out["dbias"].reshape(inputs.bias_shape)
    return out


def _forward(inputs: Inputs, row: Row, out: dict[str, Array]) -> tuple[list[Any], list[Any]]:
    """Writes o and lse of a row; its logits, and its weights with that of the sink last."""
    b, h, _ = row.place
    logits = _logits(row, inputs.softcap)
    columns = logits if row.sink is None else [*logits, row.sink]
    top = mp.nan if any(map(mpmath.isnan, columns)) else max(columns)
    gaps = [mp.fsub(s, top, exact=True) for s in columns]
    weights = [mp.exp(gap) for gap in gaps]
    total = mp.fsum(weights)
    p = [w / total for w in weights]
    kept = [row.keys[n] for n in row.kept]
    out["o"][row.place] = _combine([p[n] for n in row.kept], inputs.v.mpf[b, h // inputs.group, kept]) / inputs.share
    if mpmath.isnan(top):
        out["o"][row.place] = mp.nan  # also of a row that keeps nothing
    # One weight of the maximum is exactly 1: log1p keeps what the others add to a top of 0.
    out["lse"][row.place] = top + mp.log1p(mp.fsum(_without_one_top(weights, gaps)))
    return logits, p


def _backward(inputs: Inputs, do: Numbers, row: Row, logits: list[Any], p: list[Any], out: dict[str, Array]) -> None:
    """Writes delta and dq of a row and adds its share of the other gradients."""
    b, h, i = row.place
    hkv, keys = h // inputs.group, row.keys
    dp = row.dp if row.sink is None else [*row.dp, _like_taint(row.dp)]
    known = row.given_delta is not None
    out["delta"][row.place] = row.given_delta if known else mp.fdot(p, dp) / inputs.share
    if row.level == -mp.inf:
        return
    weight = p if row.level is None else _given_weights(row, logits)
    if known:  # every numerator is exact
        lowered = mp.fmul(row.given_delta, inputs.share, exact=True)
        slope = [mp.fsub(x, lowered, exact=True) / inputs.share for x in row.dp]
        slope += [] if row.sink is None else [-row.given_delta]
    else:  # dP_j - sum_k P_k dP_k, without its cancellation
        slope = [mp.fdot(p, [x - other for other in dp]) / inputs.share for x in dp]
    ds = [w * (x + row.dlse) for w, x in zip(weight, slope, strict=True)]
    if row.sink is not None:
        out["dsink"][h] += ds.pop()
    if inputs.slots is not None:
        for j, x in zip(keys, ds, strict=True):
            out["dbias"][inputs.slots[b, h, i, j]] += x
    if inputs.buckets is not None:
        for j, x in zip(keys, ds, strict=True):
            out["drelative_bias"][h, inputs.buckets[b, h, i, j]] += x
    if inputs.softcap is not None:
        ds = [x * _cap_slope(t, inputs.softcap) for x, t in zip(ds, row.products, strict=True)]
    out["dq"][row.place] = _combine(ds, inputs.k.mpf[b, hkv, keys]) * inputs.scale
    out["dk"][b, hkv, keys] += np.multiply.outer(_vector(ds), inputs.q.mpf[row.place] * inputs.scale)
    kept = [keys[n] for n in row.kept]
    shares = _vector([weight[n] / inputs.share for n in row.kept])
    out["dv"][b, hkv, kept] += np.multiply.outer(shares, do.mpf[row.place])


def _logits(row: Row, softcap: Any) -> list[Any]:
    """Logits of the visible keys; exact where there is no cap."""
    s = row.products if softcap is None else [softcap * mp.tanh(t / softcap) for t in row.products]
    return s if row.bias is None else [mp.fadd(x, y, exact=True) for x, y in zip(s, row.bias, strict=True)]


def _cap_slope(t: Any, softcap: Any) -> Any:
    """`1 - tanh(t / softcap)^2` as `1 / cosh^2`, which cannot cancel."""
    return 1 / mp.cosh(t / softcap) ** 2


def _given_weights(row: Row, logits: list[Any]) -> list[Any]:
    """`exp(S - given lse)`, that of the sink last. Taint is counted by rows; the sink's weight depends on no key."""
    level = row.level if mpmath.isfinite(row.level) else mp.nan
    tainted = any(map(mpmath.isnan, logits))
    weights = [mp.nan if tainted else mp.exp(mp.fsub(s, level, exact=True)) for s in logits]
    return weights if row.sink is None else [*weights, mp.exp(mp.fsub(row.sink, level, exact=True))]


def _like_taint(dp: list[Any]) -> Any:
    return mp.nan if mpmath.isnan(dp[0]) else mp.zero


def _without_one_top(weights: list[Any], gaps: list[Any]) -> list[Any]:
    first = next((n for n, gap in enumerate(gaps) if gap == 0), 0)
    return weights[:first] + weights[first + 1 :] if not mpmath.isnan(weights[first]) else weights


def _combine(coefficients: list[Any], vectors: Array) -> Array:
    """`sum_j coefficients[j] * vectors[j]`."""
    return _vector([mp.fdot(coefficients, column) for column in vectors.T.tolist()])


def _vector(values: list[Any]) -> Array:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _full(shape: tuple[int, ...], value: Any) -> Array:
    out = np.empty(shape, dtype=object)
    out.fill(value)
    return out
