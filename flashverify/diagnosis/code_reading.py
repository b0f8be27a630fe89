"""The codes of q, k and v as a kernel might read them: what each part of a code, a scale and a zero point counts for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from flashverify.case.quantised.codes import CODES, code_format

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.case.problem import Problem

__all__ = ["Reading", "numbers_as", "operand_codes"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reading:
    """One operand in codes; changed parts make another value of it.

    Attributes:
        codes: `[B, H, S, D]` uint8, one code an element.
        stored: `[B, H, S, D or D / 2]` uint8, as they lie in memory.
        numbers: what the codes stand for before the zero point, float64.
        scale: `[B, H, S, 1]` float64, of each key or row.
        groups: `[B, H, n]` float64, one of each group.
        zero: `[B, H, S, 1]` float64.
        shifted: whether there are zero points, beside the middle of `int4`.
        per: keys or rows of a group.
        lengths: `[B]`, the keys or rows that count in each sequence.
        name: of the format.
        group: query heads for each of its heads.
    """

    codes: Tensor
    stored: Tensor
    numbers: Tensor
    scale: Tensor
    groups: Tensor
    zero: Tensor
    shifted: bool
    per: int
    lengths: Tensor
    name: str
    group: int

    def value(
        self, *, numbers: Tensor | None = None, scale: Tensor | None = None, zero: Tensor | float | None = None
    ) -> tuple[Tensor, Tensor]:
        """The values, finite, and the scales that they were made with."""
        used = self.scale if scale is None else scale.expand_as(self.scale)
        made = used * ((self.numbers if numbers is None else numbers) - (self.zero if zero is None else zero))
        return _finite(made), _finite(used)

    def repeated(self, times: int) -> Reading:
        """The same with every head so many times, side by side."""
        names = ("codes", "stored", "numbers", "scale", "groups", "zero")
        return replace(self, **{name: getattr(self, name).repeat_interleave(times, 1) for name in names})

    def of_groups(self, at: Tensor, part: str = "scale") -> Tensor:
        """The scales, or zero points, of the groups `at`, `[S]` or `[B, S]`, of each key or row."""
        x: Tensor = getattr(self, part)
        key = (at.clamp(0, self.groups.shape[2] - 1) * self.per).clamp(max=max(x.shape[2] - 1, 0))
        return x.gather(2, key.expand(x.shape[0], -1)[:, None, :, None].expand_as(x))


def _finite(x: Tensor) -> Tensor:
    return torch.where(torch.isfinite(x), x, 0.0)


def operand_codes(problem: Problem, name: str) -> Reading:
    """How `q`, `k` or `v` of a quantised problem is to be read."""
    how = problem.case.quantised
    stored, scale = getattr(problem, f"{name}_codes"), getattr(problem, f"{name}_scale")
    zero = getattr(problem, f"{name}_zero", None)
    assert how is not None
    form = code_format(how.codes)
    codes = torch.stack([stored & 15, stored >> 4], -1).flatten(-2) if form.per_byte > 1 else stored
    batch, heads, length = codes.shape[:3]
    per = how.keys_per_scale(length)
    groups = scale.double().expand(batch, heads, scale.shape[2])
    at = (torch.arange(length) // per).clamp(max=groups.shape[2] - 1)
    middle = torch.full((batch, heads, length, 1), float(form.middle), dtype=torch.float64)
    return Reading(
        codes=codes,
        stored=stored,
        numbers=numbers_as(codes, how.codes),
        scale=groups[:, :, at].unsqueeze(-1),
        groups=groups,
        zero=middle if zero is None else zero.double().expand(batch, heads, zero.shape[2])[:, :, at].unsqueeze(-1),
        shifted=zero is not None,
        per=per,
        lengths=torch.tensor(
            (problem.case.rows_inside if name == "q" else problem.case.keys_inside) or (length,) * batch
        ),
        name=how.codes,
        group=1 if name == "q" else problem.case.heads_q // problem.case.heads_kv,
    )


def numbers_as(codes: Tensor, name: str) -> Tensor:
    """Codes of a byte as the numbers of a format, float64."""
    table = torch.from_numpy(CODES[name].numbers).to(codes.device)
    return table[codes.long()]
