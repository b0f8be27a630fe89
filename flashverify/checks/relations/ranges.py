"""Where doubling an input must double an output bit for bit: every rounded value is normal, and stays so.

Floating-point arithmetic commutes with a factor of 2 as long as nothing underflows or overflows: products, sums in any order,
truncation on the grid of the largest term, and divisions scale as a whole. Underflow is excluded by grids: if every operand of a sum
is a multiple of `2^g`, so is every partial sum in whatever order, and one that is not 0 is at least `2^g`. With `g >= -126` no
partial sum is subnormal, flushed or not. A product of the accumulator with a rescale factor may end two bits short of that for each
full cancellation before it; a margin of 48 bits covers two of them down to the last bit.

Each kv head of each batch entry, with the query heads of its group, has grids and ranges of its own: `[B, Hkv]`. A gradient that sums over
several of them has the least of all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.formats import FORMATS
from flashverify.outputs import OF_DS, output

if TYPE_CHECKING:
    import torch

    from flashverify.checks.relations.ground import Ground
    from flashverify.numerics.chunk import Chunk
    from flashverify.numerics.coefficient_groups import Coefficients

__all__ = ["Weights", "doubled_gradients", "doubled_o", "fits", "grid", "of_rows", "ordinary", "weights"]

_FLOOR = -126  # exponent of the smallest normal fp32 number
_MARGIN = 48
_WIDE = 24  # significand of fp32
_LARGEST = 2.0**30
_OF_LSE = 2.0**-22
"""Relative error of an LSE that is stored and read in fp32, in whatever base, at most."""
_NEVER = math.inf


def grid(x: torch.Tensor, heads: int) -> torch.Tensor:
    """log2 of the largest power of two of which every element of a kv head is a multiple, float64 `[B, heads]`; +inf where all are 0."""
    import torch

    values = x.detach().double()
    mantissa, exponent = torch.frexp(values)
    whole = (mantissa * 2.0**53).to(torch.int64)
    low = torch.log2((whole & -whole).double()) + exponent.double() - 53
    return _least(low.where(values != 0, _NEVER), heads)


def fits(x: torch.Tensor, dtype: str, heads: int) -> torch.Tensor:
    """Bool `[B, heads]`: kv heads of which doubling every element is exact and stays in the range: no subnormals, nothing above half the maximum."""
    size = x.detach().double().abs()
    least = _least(size.where(size != 0, _NEVER), heads)
    return (least >= 2.0 ** FORMATS[dtype].emin) & (_most(x, heads) <= FORMATS[dtype].max / 2)


def of_rows(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """What `[B, Hkv]` says of each head of `[B, H, ...]`, with an axis of size 1 for every other one."""
    found = x.repeat_interleave(like.shape[1] // x.shape[1], 1)
    return found.view(*found.shape, *[1] * (like.dim() - 2))


def _least(x: torch.Tensor, heads: int) -> torch.Tensor:
    """The least element of each kv head of `[B, H, ...]`, `[B, heads]`; +inf of none."""
    batch, count = x.shape[0], math.prod(x.shape[1:]) // heads
    grouped = x.reshape(batch, heads, count)
    return grouped.amin(2) if count else grouped.new_full((batch, heads), _NEVER)


def _most(x: torch.Tensor, heads: int) -> torch.Tensor:
    """The largest magnitude of each kv head of `[B, H, ...]`, `[B, heads]`; 0 of none."""
    return -_least(-x.detach().double().abs(), heads).clamp(max=0.0)


def ordinary(x: torch.Tensor, dtype: str) -> torch.Tensor:
    """Bool: elements that were rounded as normal numbers, and whose double is in the range."""
    size = x.abs().double()
    return (size > 2.0 ** FORMATS[dtype].emin) & (size <= FORMATS[dtype].max / 4)


@dataclass(frozen=True, slots=True)
class Weights:
    """log2 of the smallest visible weights that a kernel of the form may compute, float64; +inf where no pair is visible.

    They lie below the exact ones by what the logits and the LSE may be wrong: logits near 2^30 are multiples of 64 in fp32, and the weight
    of a row's only key may come out as 2^-92 instead of 1.

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

    case, bounds = ground.problem.case, ground.bounds
    coefficients, form = bounds.coefficients(), bounds.form
    fwd, row = [], []
    key = torch.full((case.batch * case.heads_kv, case.seq_k), _NEVER, dtype=torch.float64, device=bounds.q.device)
    sink = _NEVER
    for chunk in bounds.chunks():
        hidden = None if chunk.vis is None else chunk.vis == 0
        spread = (chunk.S - chunk.m).exp().sum(-1, keepdim=True)
        if chunk.sink is not None:
            spread = spread + (chunk.sink - chunk.m).exp()
        log_sum = chunk.m + spread.log()
        forward = _logit_errors(coefficients, chunk, form.prescale_fwd, hidden, backward=False)
        again = _logit_errors(coefficients, chunk, form.prescale_bwd, hidden, backward=True)
        worst = forward.amax(-1, keepdim=True) if forward.shape[-1] else forward.sum(-1, keepdim=True)
        of_lse = worst + _OF_LSE * log_sum.abs()
        to_max = (chunk.S - chunk.m - forward - worst) / math.log(2.0)
        to_sum = (chunk.S - log_sum - torch.maximum(forward, again) - of_lse) / math.log(2.0)
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


def _logit_errors(
    coefficients: Coefficients, chunk: Chunk, prescale: str, hidden: torch.Tensor | None, *, backward: bool
) -> torch.Tensor:
    """How far the logits of a pass may be from the exact ones, natural units, `[G, M, N]`; 0 of hidden pairs."""
    from flashverify.numerics.logits import logit_error

    error, more, _ = logit_error(coefficients, chunk, prescale, backward=backward)
    error = error + more
    return error if hidden is None else error.masked_fill(hidden, 0.0)


def _significand(dtype: str) -> int:
    return FORMATS[dtype].mantissa + 1


def doubled_o(ground: Ground, found: Weights) -> torch.Tensor:
    """Bool `[B, Hq, Sq, Dv]`: elements of O that V doubled must double: of heads whose V fits."""
    case, v = ground.problem.case, ground.inputs.v
    heads, o = case.heads_kv, ground.base.outputs["o"]
    safe = _last_bit(found.fwd, case.dtype) + found.fwd + of_rows(grid(v, heads), found.fwd) - _MARGIN >= _FLOOR
    low = (_most(v, heads) <= _LARGEST) & fits(v, case.dtype, heads)
    return safe.unsqueeze(-1) & ordinary(o, case.dtype) & of_rows(low, o)


def doubled_gradients(ground: Ground, found: Weights) -> dict[str, torch.Tensor]:
    """Per gradient the elements that dO (and dLSE) doubled must double: of heads whose dO fits.

    dS = P (dP - delta) is a multiple of the smallest weight times the grid of dP and delta, cast to the inputs' dtype; in fp16 it is
    subnormal more often than not, so there dV alone is asked.
    """
    import torch

    i, outputs, case = ground.inputs, ground.base.outputs, ground.problem.case
    assert i.do is not None
    heads = case.heads_kv
    biggest = torch.stack([_most(x, heads) for x in (i.q, i.k, i.v, i.do)]).amax(0)
    usable = (biggest <= _LARGEST) & fits(i.do, case.dtype, heads)
    g_do, g_o = grid(i.do, heads), _smallest(outputs["o"], heads) - _WIDE
    g_delta = g_do + g_o
    g_x = torch.minimum(g_do + grid(i.v, heads), g_delta)
    g_x = g_x if i.dlse is None else torch.minimum(g_x, grid(i.dlse, heads))
    bits, scale = _significand(case.dtype), abs(i.scale)
    factor = min(0.0, math.log2(scale)) if scale else -_NEVER
    g_row, g_key = of_rows(g_x, found.row), of_rows(g_x, found.key)
    ds = {"dq": found.row + g_row - bits + factor, "dk": found.key + g_key - bits + factor}
    safe = {
        "dv": _last_bit(found.key, case.dtype) + of_rows(g_do, found.key),
        "delta": of_rows(g_delta, found.row).expand_as(found.row),
    }
    if not FORMATS[case.dtype].short and i.softcap is None:
        # dS is rounded before it meets K or Q, whatever their size
        safe["dq"] = ds["dq"] + of_rows(grid(i.k, heads), found.row).clamp(max=0.0)
        safe["dk"] = ds["dk"] + of_rows(grid(i.q, heads), found.key).clamp(max=0.0)
        least = float((found.row + g_row).min()) if found.row.numel() else _NEVER
        for name in (name for name in OF_DS if output(name).optional and name in outputs):
            safe[name] = torch.full_like(outputs[name], least - _WIDE, dtype=torch.float64)
        if "dsink" in outputs:
            of_sink = found.sink - _WIDE + (float(g_delta.min()) if g_delta.numel() else _NEVER)
            safe["dsink"] = torch.full_like(outputs["dsink"], of_sink, dtype=torch.float64)
    masks = {}
    for name, exponent in safe.items():
        if name in outputs:
            limit = exponent if exponent.dim() == outputs[name].dim() else exponent.unsqueeze(-1)
            kept = ordinary(outputs[name], output(name).dtype_of(case.dtype))
            whole = output(name).optional
            masks[name] = (limit >= _FLOOR) & kept & (usable.all() if whole else of_rows(usable, outputs[name]))
    return masks


def _last_bit(weight: torch.Tensor, dtype: str) -> torch.Tensor:
    """Of a weight that is cast: in fp16 a multiple of 2^-24 however small it is; in wider ranges the last bit follows the size."""
    last, entry = weight - _significand(dtype), FORMATS[dtype]
    return last.clamp(min=float(entry.emin - entry.mantissa)) if entry.short else last


def _smallest(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Exponent of the smallest finite magnitude that is not 0 of each kv head; what no contract defines may hold anything."""
    import torch

    size = x.detach().double().abs()
    return _least(size.where((size != 0) & torch.isfinite(size), _NEVER), heads).log2().floor()
