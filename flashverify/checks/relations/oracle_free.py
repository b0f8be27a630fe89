"""Relations that need no oracle of N^2 work: they hold for shapes that none can reach, read off rows that can be recomputed.

Up to `ROWS_WORK` pairs every row is asked; beyond, the first, the last and rows drawn by the seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flashverify.checks.accuracy import judged_form
from flashverify.checks.left_open import undefined_elements
from flashverify.checks.relations.bounded import with_channels
from flashverify.checks.relations.ground import failure, within
from flashverify.checks.relations.side import Side
from flashverify.checks.relations.spec import RelationSpec
from flashverify.truth import Truth, inputs_of, of_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from flashverify.case.problem import Problem
    from flashverify.checks.relations.ground import Ground
    from flashverify.judge.verdict import Verdict

__all__ = ["ROWS_WORK", "SPECS", "sampled_rows"]

ROWS_WORK = 1 << 22
"""Pairs of a row and a key, over all heads, up to which every row is asked."""

_LEAST_ROWS = 16


def sampled_rows(problem: Problem, most: int = ROWS_WORK) -> torch.Tensor:
    """Numbers of the rows that are asked, ascending, int64: all of them where that costs at most `most` pairs."""
    import torch

    case = problem.case
    count = max(_LEAST_ROWS, most // max(1, case.batch * case.heads_q * case.seq_k))
    if count >= case.seq_q:
        return torch.arange(case.seq_q, device=problem.q.device)
    drawn = np.random.default_rng(case.values.seed).choice(case.seq_q, count, replace=False)
    return torch.from_numpy(np.unique([0, case.seq_q - 1, *drawn])).to(problem.q.device)


def o_in_hull(ground: Ground) -> Iterator[Verdict] | None:
    """Every element of O lies in the hull of its channel of the visible V, of 0 too under dropout or a sink."""
    from flashverify.checks.relations.hulls import hull

    return _between(ground, "o", "hull", hull)


def lse_in_range(ground: Ground) -> Iterator[Verdict] | None:
    """Max S <= LSE <= max S + log n, of a sink too where there is one."""
    from flashverify.checks.relations.hulls import lse_range

    return _between(ground, "lse", "lse-range", lse_range) if "lse" in ground.base.outputs else None


def _between(
    ground: Ground,
    name: str,
    relation: str,
    limits: Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]],
) -> Iterator[Verdict] | None:
    case = ground.problem.case
    return None if case.seq_k == 0 or case.seq_q == 0 or case.batch == 0 else _outside(ground, name, relation, limits)


def _outside(ground: Ground, name: str, relation: str, limits: Callable[..., Any]) -> Iterator[Verdict]:
    rows = sampled_rows(ground.problem)
    inputs = of_rows(ground.inputs, rows)
    low, high, free = limits(inputs, ground.problem.case.dtype, judged_form(ground.subject, ground.problem))
    undefined = undefined_elements(ground.problem, ground.subject.contract).get(name)
    got = ground.base.outputs[name]
    if undefined is not None:
        free = free | undefined.expand(got.shape).index_select(2, rows)
    x = got.index_select(2, rows).double()
    wrong = ~((x >= low) & (x <= high)) & ~free
    if not bool(wrong.any()):
        return
    at = tuple(int(i) for i in wrong.nonzero()[0])
    index = (*at[:2], int(rows[at[2]]), *at[3:])
    text = f"{float(x[at]):.9g} lies outside [{float(low[at]):.9g}, {float(high[at]):.9g}] ({int(wrong.sum())} of {wrong.numel()} elements asked)"
    yield failure(relation, name, index, text)


def ds_sum(ground: Ground) -> Iterator[Verdict] | None:
    """The row sums of dS, read from dQ in channels where K is constant and Q is 0: they are 0, or dLSE.

    `sum_j P_j (dP_j - delta) = delta - delta`, with a dLSE once more `sum_j P_j dLSE`. A sink takes a part of the row, and the
    derivative of a softcap stands between S and the products, so that neither is asked.
    """
    case = ground.problem.case
    paged, empty = case.storage.page_size is not None, 0 in (case.batch, case.seq_q, case.seq_k)
    if (
        ground.problem.do is None
        or "dq" not in ground.base.outputs
        or case.logits.sink
        or case.logits.softcap
        or paged
        or empty
    ):
        return None
    wider = with_channels(ground.problem, 0.0, 1.0)
    return None if ground.subject.supports.refusal(wider.case) is not None else _ds_sum(ground, wider)


def _ds_sum(ground: Ground, wider: Problem) -> Iterator[Verdict]:
    import torch

    outputs = ground.run(wider).outputs
    rows, dim = sampled_rows(wider), ground.problem.case.dim_qk
    inputs = of_rows(inputs_of(wider)[0], rows)
    truth = Truth(inputs, wider.case.dtype, judged_form(ground.subject, wider))
    bound = truth.widest()["dq"][1]
    block = slice(dim, None)
    got = outputs["dq"].index_select(2, rows)[..., block].double()
    free = bound.exempt | bound.may_overflow | bound.must_overflow
    undefined = undefined_elements(wider, ground.subject.contract).get("dq")
    if undefined is not None:
        free = free | undefined.expand(outputs["dq"].shape).index_select(2, rows)
    expected = torch.zeros_like(got)
    if inputs.dlse is not None:
        seen = ~truth.empty_rows
        expected = expected + (inputs.scale * inputs.dlse.double() * seen).unsqueeze(-1)
    zero = torch.zeros_like(got)
    left = {"dq": Side(got, zero, free[..., block])}
    for verdict in within("ds-sum", left, {"dq": Side(expected, bound.total[..., block], free[..., block])}):
        b, h, row, channel = verdict.index
        place = (b, h, int(rows[row]), channel)
        yield failure(
            "ds-sum", "dq", place, f"the row sum of dS, in an appended channel: {verdict.message.split(': ', 1)[1]}"
        )


SPECS = (
    RelationSpec(
        name="hull",
        passes=0,
        oracle_free=True,
        run=o_in_hull,
        sentence="every element of O lies between the smallest and the largest visible V of its channel",
        title="{output} lies outside the values of V that its row sees",
    ),
    RelationSpec(
        name="lse-range",
        passes=0,
        oracle_free=True,
        run=lse_in_range,
        sentence="LSE lies between max S and max S + log n",
        title="{output} lies outside the range from max S to max S + log n",
    ),
    RelationSpec(
        name="ds-sum",
        oracle_free=True,
        run=ds_sum,
        sentence="the rows of dS sum to 0, or to dLSE",
        title="the rows of dS, read from {output}, have a wrong sum",
    ),
)
