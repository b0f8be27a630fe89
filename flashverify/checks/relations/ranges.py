"""Where doubling an input must double an output bit for bit: every rounded value is normal, and stays so.

Floating-point arithmetic commutes with a factor of 2 as long as nothing underflows or overflows: products, sums in any order,
truncation on the grid of the largest term, and divisions scale as a whole. Underflow is excluded by grids: if every operand of a sum
is a multiple of `2^g`, so is every partial sum in whatever order, and one that is not 0 is at least `2^g`. With `g >= -126` no
partial sum is subnormal, flushed or not. A product of the accumulator with a rescale factor may end two bits short of that for each
full cancellation before it; a margin of 48 bits covers two of them down to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.checks.accuracy import judged_form
from flashverify.formats import FORMATS
from flashverify.outputs import OF_DS, output

if TYPE_CHECKING:
    import torch

    from flashverify.checks.relations.ground import Ground

__all__ = ["Weights", "doubled_gradients", "doubled_o", "fits", "grid", "ordinary", "weights"]

_FLOOR = -126  # exponent of the smallest normal fp32 number
_MARGIN = 48
_WIDE = 24  # significand of fp32
_LARGEST = 2.0**30
_NEVER = math.inf


def grid(x: torch.Tensor) -> float:
    """log2 of the largest power of two of which every element is a multiple; +inf where all are 0."""
    import torch

    values = x.detach().double()
    values = values[values != 0]
    if not values.numel():
        return _NEVER
    mantissa, exponent = torch.frexp(values)
    whole = (mantissa * 2.0**53).to(torch.int64)
    low = torch.log2((whole & -whole).double())
    return float((low + exponent.double()).min()) - 53


def fits(x: torch.Tensor, dtype: str) -> bool:
    """Whether doubling every element is exact and keeps it in the range: no subnormals, nothing above half the maximum."""
    size = x.detach().double().abs()
    size = size[size != 0]
    smallest = 2.0 ** FORMATS[dtype].emin
    return not size.numel() or (float(size.min()) >= smallest and float(size.max()) <= FORMATS[dtype].max / 2)


def ordinary(x: torch.Tensor, dtype: str) -> torch.Tensor:
    """Bool: elements that were rounded as normal numbers, and whose double is in the range."""
    size = x.abs().double()
    return (size > 2.0 ** FORMATS[dtype].emin) & (size <= FORMATS[dtype].max / 4)


@dataclass(frozen=True, slots=True)
class Weights:
    """log2 of the smallest visible weights, float64; +inf where no pair is visible.

    Attributes:
        fwd: `[B, Hq, Sq]`, of each row, against the row's maximum.
        row: `[B, Hq, Sq]`, of each row, against its LSE.
        key: `[B, Hkv, Sk]`, of each key, against the LSE.
        sink: of all sinks, against the LSE.
    """

    fwd: torch.Tensor
    row: torch.Tensor
    key: torch.Tensor
    sink: float


def weights(ground: Ground) -> Weights:
    """The smallest weights of the base pass, in chunks of rows."""
    import torch

    from flashverify.numerics import BoundInputs

    case, i = ground.problem.case, ground.inputs.dense()
    bounds = BoundInputs.of(
        i.q, i.k, i.v, dtype=case.dtype, form=judged_form(ground.subject, ground.problem), **i.problem()
    )
    fwd, row = [], []
    key = torch.full((case.batch * case.heads_kv, case.seq_k), _NEVER, dtype=torch.float64, device=i.q.device)
    sink = _NEVER
    for chunk in bounds.chunks():
        hidden = None if chunk.vis is None else chunk.vis == 0
        spread = (chunk.S - chunk.m).exp().sum(-1, keepdim=True)
        if chunk.sink is not None:
            spread = spread + (chunk.sink - chunk.m).exp()
        log_sum = chunk.m + spread.log()
        to_max, to_sum = ((chunk.S - x) / math.log(2.0) for x in (chunk.m, log_sum))
        if hidden is not None:
            to_max, to_sum = to_max.masked_fill(hidden, _NEVER), to_sum.masked_fill(hidden, _NEVER)
        fwd.append(to_max.amin(-1, keepdim=True))
        row.append(to_sum.amin(-1, keepdim=True))
        key = torch.minimum(key, to_sum.amin(-2))
        if chunk.sink is not None and chunk.sink.numel():
            seen = torch.where(chunk.empty, _NEVER, (chunk.sink - log_sum) / math.log(2.0))
            sink = min(sink, float(seen.min()))
    by_row, by_sum = (bounds.join(x).squeeze(-1) for x in (fwd, row))
    return Weights(by_row, by_sum, key.view(case.batch, case.heads_kv, case.seq_k), sink)


def _significand(dtype: str) -> int:
    return FORMATS[dtype].mantissa + 1


def doubled_o(ground: Ground, found: Weights) -> torch.Tensor:
    """Bool `[B, Hq, Sq, Dv]`: elements of O that V doubled must double, given that V itself fits."""
    case, v = ground.problem.case, ground.inputs.v
    safe = _last_bit(found.fwd, case.dtype) + found.fwd + grid(v) - _MARGIN >= _FLOOR
    low = float(v.abs().max()) <= _LARGEST if v.numel() else True
    return safe.unsqueeze(-1) & ordinary(ground.base.outputs["o"], case.dtype) & low


def doubled_gradients(ground: Ground, found: Weights) -> dict[str, torch.Tensor]:
    """Per gradient the elements that dO (and dLSE) doubled must double, given that these fit.

    dS = P (dP - delta) is a multiple of the smallest weight times the grid of dP and delta, cast to the inputs' dtype; in fp16 it is
    subnormal more often than not, so there dV alone is asked.
    """
    import torch

    i, outputs, case = ground.inputs, ground.base.outputs, ground.problem.case
    assert i.do is not None
    biggest = max(float(x.abs().max()) if x.numel() else 0.0 for x in (i.q, i.k, i.v, i.do))
    g_do, g_o = grid(i.do), _smallest(outputs["o"]) - _WIDE
    g_delta = g_do + g_o
    g_x = min(g_do + grid(i.v), g_delta, _NEVER if i.dlse is None else grid(i.dlse))
    bits, scale = _significand(case.dtype), abs(i.scale)
    factor = min(0.0, math.log2(scale)) if scale else -_NEVER
    ds = {"dq": found.row + g_x - bits + factor, "dk": found.key + g_x - bits + factor}
    safe = {
        "dv": _last_bit(found.key, case.dtype) + g_do,
        "delta": torch.full_like(found.row, g_delta),
    }
    if not FORMATS[case.dtype].short and i.softcap is None:
        safe |= {"dq": ds["dq"] + grid(i.k), "dk": ds["dk"] + grid(i.q)}
        least = float(found.row.min()) if found.row.numel() else _NEVER
        for name in (name for name in OF_DS if output(name).optional and name in outputs):
            safe[name] = torch.full_like(outputs[name], least + g_x - _WIDE, dtype=torch.float64)
        if "dsink" in outputs:
            safe["dsink"] = torch.full_like(outputs["dsink"], found.sink - _WIDE + g_delta, dtype=torch.float64)
    masks = {}
    for name, exponent in safe.items():
        if name in outputs:
            limit = exponent if exponent.dim() == outputs[name].dim() else exponent.unsqueeze(-1)
            kept = ordinary(outputs[name], output(name).dtype_of(case.dtype))
            masks[name] = (limit >= _FLOOR) & kept & (biggest <= _LARGEST)
    return masks


def _last_bit(weight: torch.Tensor, dtype: str) -> torch.Tensor:
    """Of a weight that is cast: in fp16 a multiple of 2^-24 however small it is; in wider ranges the last bit follows the size."""
    last, entry = weight - _significand(dtype), FORMATS[dtype]
    return last.clamp(min=float(entry.emin - entry.mantissa)) if entry.short else last


def _smallest(x: torch.Tensor) -> float:
    """Exponent of the smallest finite magnitude that is not 0; what no contract defines may hold anything."""
    import torch

    size = x.detach().double().abs()
    size = size[(size != 0) & torch.isfinite(size)]
    return math.floor(math.log2(float(size.min()))) if size.numel() else _NEVER
