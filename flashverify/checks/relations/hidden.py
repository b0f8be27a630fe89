"""The relation of a problem with one in which keys that a row does not see hold other, huge values.

The exact values of the rows that see none of these keys stay as they are. Their bits need not: the rows of a tile may share a decision
that follows from all of them, as whether to rescale, and no contract promises otherwise. Both passes keep to their own bounds, so the
two may differ by the sum of these. A masked pair that weighs next to nothing is within the bounds of ordinary values; here it is
multiplied by a huge V, or its weight is raised by a logit far above the visible ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flashverify.checks.passes.derived_problems import altered
from flashverify.checks.relations.ground import alike, within
from flashverify.checks.relations.side import sides
from flashverify.checks.relations.spec import RelationSpec
from flashverify.formats import FORMATS
from flashverify.outputs import rows_reach

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.case import Case
    from flashverify.checks.relations.ground import Ground
    from flashverify.judge.verdict import Verdict
    from flashverify.truth import Inputs

__all__ = ["SPECS"]

# Sums of products with the new values stay below these, far inside fp32, so that a weight of 0 never meets an infinity. K enters dQ too.
_LARGEST_LOGIT = 2.0**60
_LARGEST_SUM = 2.0**110


def hidden_keys(ground: Ground) -> Iterator[Verdict] | None:
    """Keys that a row does not see, with huge values, change nothing of the rows that see none of them."""
    import torch

    case = ground.problem.case
    if not _hides(case) or case.storage.page_size is not None or case.storage.expand:
        return None
    inputs = ground.inputs.dense()
    if not isinstance(inputs.visible, torch.Tensor):
        return None
    seen = inputs.visible.expand(case.batch, case.heads_q, case.seq_q, case.seq_k)
    seen = seen.reshape(case.batch, case.heads_kv, -1, case.seq_q, case.seq_k)
    by_group = seen.any(2)
    hidden = ~by_group & _inside(case, seen.device)
    asked = hidden.any(-1) & by_group.any(-1)
    if not bool(asked.any()):
        return None
    drawn = torch.from_numpy(np.random.default_rng(case.values.seed).random(asked.shape)).to(seen.device)
    row = drawn.masked_fill(~asked, -1.0).argmax(-1)
    keys = hidden.gather(2, _along(row, case.seq_k)).squeeze(2) & asked.any(-1, keepdim=True)
    return _hidden_keys(ground, inputs, row, keys, (seen & keys[:, :, None, None]).any(-1).flatten(1, 2))


def _hidden_keys(
    ground: Ground, inputs: Inputs, row: torch.Tensor, keys: torch.Tensor, touched: torch.Tensor
) -> Iterator[Verdict]:
    """The comparison.

    Args:
        ground: the base pass.
        inputs: its inputs.
        row: `[B, Hkv]`, the row whose hidden keys change.
        keys: bool `[B, Hkv, Sk]`, these keys.
        touched: bool `[B, Hq, Sq]`, rows that see one of them.
    """
    k, v = _huge_k(inputs, ground.problem.case, row), _huge_v(inputs, ground.problem.case)
    where = keys.unsqueeze(-1)
    problem = altered(ground.problem, lambda x: x.where(~where, k.to(x.dtype)), "k")
    problem = altered(problem, lambda x: x.where(~where, v.to(x.dtype)), "v")
    free = {"o": touched.unsqueeze(-1), "lse": touched, **rows_reach(touched, problem)}
    other = ground.run(problem)
    if alike((tensor, other.outputs[name], free[name]) for name, tensor in ground.base.outputs.items()):
        return
    left = {name: side.without(free[name]) for name, side in ground.sides.items()}
    yield from within("hidden-keys", left, sides(ground.subject, other))


def _huge_k(inputs: Inputs, case: Case, row: torch.Tensor) -> torch.Tensor:
    """K `[B, Hkv, 1, D]`, float64, along the query of the row, so that the logit is far above the visible ones of its head."""
    q = inputs.q.double().reshape(case.batch, case.heads_kv, -1, *inputs.q.shape[2:])[:, :, 0]
    along = q.gather(2, _along(row, case.dim_qk))
    size = along.abs().amax(-1, keepdim=True)
    along = (along / size).where(size > 0, 1.0)
    factor = max(1.0, abs(inputs.scale) / math.log(2.0))
    limit = (_LARGEST_LOGIT / (case.dim_qk * _largest(inputs.q, case))).clamp(max=FORMATS[case.dtype].max / 4)
    return along * (math.copysign(1.0, inputs.scale) * limit / factor)


def _huge_v(inputs: Inputs, case: Case) -> torch.Tensor:
    """V `[B, Hkv, 1, 1]`, float64, whose products with dO of its head stay finite."""
    limit = _LARGEST_SUM / (case.dim_v * _largest(inputs.q[..., :1] * 0 if inputs.do is None else inputs.do, case))
    return limit.clamp(max=FORMATS[case.dtype].max / 4) * (1.0 - case.dropout)


def _largest(x: torch.Tensor, case: Case) -> torch.Tensor:
    """The largest magnitude in the query heads of each head of k, and 1 at least, float64 `[B, Hkv, 1, 1]`."""
    grouped = x.double().abs().reshape(case.batch, case.heads_kv, -1)
    return grouped.amax(-1).clamp(min=1.0)[:, :, None, None]


def _along(row: torch.Tensor, size: int) -> torch.Tensor:
    return row[:, :, None, None].expand(-1, -1, 1, size)


def _inside(case: Case, device: torch.device) -> torch.Tensor:
    """Bool `[B or 1, 1, 1, Sk]`: keys inside the declared lengths; what lies behind them is the question of `padding`."""
    import torch

    lengths = torch.tensor(case.keys_inside or (case.seq_k,), device=device)
    return torch.arange(case.seq_k, device=device) < lengths.view(-1, 1, 1, 1)


def _hides(case: Case) -> bool:
    return not case.mask.parts() <= {"key_lengths", "query_lengths"}


SPECS = (
    RelationSpec(
        name="hidden-keys",
        stands=_hides,
        run=hidden_keys,
        sentence="keys that a row does not see change nothing of it, however large their values are",
        title="{output} changes with keys that its row does not see",
    ),
)
