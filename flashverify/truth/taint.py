"""What a non-finite input inside the declared lengths may reach (docs/bounds.md, section 19)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.case.memory.transfers import any_of
from flashverify.case.quantised.dequantised import dequantised
from flashverify.outputs import output, rows_reach

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem

__all__ = ["Clean", "clean"]

_TF32_OVERFLOW = float.fromhex("0x1.ffep+127")


@dataclass(frozen=True, slots=True)
class Clean:
    """The inputs with every non-finite or undeclared element set to 0, and the elements that they may have reached.

    Attributes:
        q, k, v, do, dlse: float64, finite.
        taint: per output a bool tensor that broadcasts to it; empty where every input is finite.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    do: torch.Tensor | None
    dlse: torch.Tensor | None
    taint: dict[str, torch.Tensor]


def clean(problem: Problem) -> Clean:
    """Splits the inputs of `problem` into finite values and taint.

    In tf32x3 an operand that rounds to infinity in tf32, within 2^-12 of the largest finite fp32, counts as non-finite.

    A non-finite q or k taints every output of its (batch, kv head) group; one in v taints its channel of O, and delta, dQ and
    dK of the group; one in dO or dLSE taints delta, dQ, dK of the group and, from dO, dV. Elements beyond the declared lengths
    are no part of the problem: they are set to 0 and taint nothing. k and v of a quantised case, and a q in codes, are what their codes stand for.
    """
    from flashverify.numerics.known_absent import below

    case, device = problem.case, problem.q.device
    values = dequantised(problem)
    given_k, given_v = (problem.k, problem.v) if values is None else (values.k, values.v)
    given_q = problem.q if values is None or values.q is None else values.q
    keys, rows = _inside(case.keys_inside, case.seq_k, device), _inside(case.rows_inside, case.seq_q, device)
    limit = _TF32_OVERFLOW if case.precision == "tf32x3" else math.inf

    def split(
        tensor: torch.Tensor | None, inside: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        if tensor is None:
            return None, None
        wide = tensor.double()
        if inside is not None:
            wide = wide.where(inside.view(case.batch, 1, inside.shape[1], *[1] * (wide.dim() - 3)), 0.0)
        size = wide.abs()
        if below(size, limit):
            return wide.contiguous(), None  # as what is made by masking: sums depend on the order in memory
        bad = ~(size < limit)
        return wide.masked_fill(bad, 0.0), bad

    q, bad_q = split(given_q, rows)
    k, bad_k = split(given_k, keys)
    v, bad_v = split(given_v, keys)
    do, bad_do = split(problem.do, rows)
    dlse, bad_dlse = split(problem.dlse, rows)
    assert q is not None
    assert k is not None
    assert v is not None
    bads = [bad for bad in (bad_q, bad_k, bad_v, bad_do, bad_dlse) if bad is not None]
    if not any(any_of(bads)):
        return Clean(q, k, v, do, dlse, {})
    return Clean(q, k, v, do, dlse, _taint(problem, bad_q, bad_k, bad_v, bad_do, bad_dlse))


def _inside(lengths: tuple[int, ...] | None, size: int, device: torch.device) -> torch.Tensor | None:
    """Bool `[B, size]`: inside the declared lengths; None where everything is."""
    import torch

    if lengths is None:
        return None
    return torch.arange(size, device=device) < torch.tensor(lengths, device=device).view(-1, 1)


def _taint(problem: Problem, *bads: torch.Tensor | None) -> dict[str, torch.Tensor]:
    import torch

    case = problem.case
    B, Hkv, g = case.batch, case.heads_kv, case.heads_q // case.heads_kv
    none = torch.zeros(B, Hkv, 1, 1, dtype=torch.bool, device=problem.q.device)

    def per_group(bad: torch.Tensor | None, *, channels: bool = False) -> torch.Tensor:
        """`[B, Hkv, 1, 1]`, or `[B, Hkv, 1, channels]`: whether the group holds a bad element."""
        if bad is None:
            return none
        bad = bad if bad.dim() == 4 else bad.unsqueeze(-1)
        grouped = bad.reshape(B, Hkv, -1, bad.shape[-1]).any(2, keepdim=True)
        return grouped if channels else grouped.any(3, keepdim=True)

    bad_q, bad_k, bad_v, bad_do, bad_dlse = bads
    scores = per_group(bad_q) | per_group(bad_k)
    ds = scores | per_group(bad_v) | per_group(bad_do) | per_group(bad_dlse)
    to_rows = {
        "o": scores | per_group(bad_v, channels=True),
        "lse": scores,
        "delta": scores | per_group(bad_v) | per_group(bad_do),
        "dq": ds,
    }
    spread = {name: mask.repeat_interleave(g, dim=1) for name, mask in to_rows.items()}
    spread["lse"], spread["delta"] = spread["lse"].squeeze(-1), spread["delta"].squeeze(-1)
    spread |= {"dk": ds, "dv": scores | per_group(bad_do)}
    reached = rows_reach(spread["dq"].squeeze(-1), problem)
    return spread | {name: mask for name, mask in reached.items() if output(name).optional}
