"""What the codes of a problem stand for: exact values, and the scale of each key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.case.quantised.codes import code_format

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem

__all__ = ["Dequantised", "dequantised"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dequantised:
    """k and v as their codes say, and q where it is in codes, in float64, which holds `scale * (code - zero)` exactly.

    Attributes:
        k: `[B, Hkv, Sk, D]`; v `[B, Hkv, Sk, Dv]`. Codes and scales that are no finite number give what they give.
        k_scale: `[B, Hkv, Sk, 1]`; v_scale likewise.
        q: `[B, Hq, Sq, D]`, or None where q is no codes; q_scale `[B, Hq, Sq, 1]` likewise.
    """

    k: torch.Tensor
    v: torch.Tensor
    k_scale: torch.Tensor
    v_scale: torch.Tensor
    q: torch.Tensor | None = None
    q_scale: torch.Tensor | None = None


def dequantised(problem: Problem) -> Dequantised | None:
    """The values of a quantised problem; None where k and v are no codes."""
    if problem.case.quantised is None:
        return None
    k, k_scale = _values(problem, "k")
    v, v_scale = _values(problem, "v")
    q, q_scale = _values(problem, "q") if problem.case.quantised.q else (None, None)
    return Dequantised(k=k, v=v, k_scale=k_scale, v_scale=v_scale, q=q, q_scale=q_scale)


def _values(problem: Problem, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    how = problem.case.quantised
    codes, scale, zero = (getattr(problem, f"{name}_{part}", None) for part in ("codes", "scale", "zero"))
    assert how is not None
    assert codes is not None
    assert scale is not None
    form = code_format(how.codes)
    if form.per_byte > 1:
        codes = torch.stack([codes & 15, codes >> 4], -1).flatten(-2)
    numbers = torch.from_numpy(form.numbers).to(codes.device)[codes.long()]
    at = torch.arange(codes.shape[2], device=codes.device) // how.keys_per_scale(codes.shape[2])

    def of_keys(x: torch.Tensor) -> torch.Tensor:
        at_most = at.clamp(max=x.shape[2] - 1)
        return x.double().index_select(2, at_most).expand(*codes.shape[:3]).unsqueeze(-1)

    found = of_keys(scale)
    return found * (numbers - (form.middle if zero is None else of_keys(zero))), found
