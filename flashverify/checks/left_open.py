"""Elements of outputs that are no question of accuracy: those that a contract leaves open, and those that it pins to a value."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from flashverify.outputs import OUTPUTS, output, pinned_rows

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem
    from flashverify.subjects.interface import Contract
    from flashverify.truth import Truth

__all__ = ["outside", "pinned_elements", "undefined_elements"]

_ROWS = 1024
"""Rows of a mask that are looked at together."""


def undefined_elements(problem: Problem, contract: Contract) -> dict[str, torch.Tensor]:
    """Per output the elements about which the contract says nothing.

    These are the ones behind packed sequences, and where it leaves them open those outside the declared lengths and in rows that see no key.
    """
    packed = problem.case.mask.packed is not None
    found = {} if contract.padding == "written" and not packed else outside(problem)
    open_rows = {"o": contract.empty_row_o is None, "lse": contract.empty_row_lse is None}
    names = [name for name, is_open in open_rows.items() if is_open]
    if names:
        empty = _rows_without_keys(problem)
        for name in (*names, "delta", "dq"):
            mask = empty.unsqueeze(-1) if output(name).channels else empty
            found[name] = found[name] | mask if name in found else mask
    return found


def outside(problem: Problem) -> dict[str, torch.Tensor]:
    """Bool masks, broadcastable to each output: outside the declared lengths, or behind the last packed sequence."""
    import torch

    case, device = problem.case, problem.q.device

    def beyond(lengths: tuple[int, ...] | None, size: int) -> torch.Tensor | None:
        if lengths is None:
            return None
        return torch.arange(size, device=device) >= torch.tensor(lengths, device=device).view(-1, 1, 1)

    rows, keys = beyond(case.rows_inside, case.seq_q), beyond(case.keys_inside, case.seq_k)
    beyond_axis = {"row": rows, "key": keys}
    found: dict[str, torch.Tensor] = {}
    for name in OUTPUTS:
        spec = output(name)
        if (mask := beyond_axis.get(spec.along or "")) is not None:
            found[name] = mask.unsqueeze(-1) if spec.channels else mask
    return found


def pinned_elements(truth: Truth, problem: Problem, contract: Contract) -> dict[str, tuple[torch.Tensor, float]]:
    """Per output the elements that hold a value by contract, bool, and this value: rows that see no key, and keys outside the lengths.

    An LSE that is the sink has a bound like any other; outside the declared lengths it is that of a row without one.
    """
    beyond = outside(problem)
    found = pinned_rows(truth.empty_rows, empty_row_o=contract.empty_row_o, empty_row_lse=contract.fixed_lse)
    if truth.sums_sink:
        _, value = found.pop("lse")
        if "lse" in beyond:
            found["lse"] = (beyond["lse"], value)
    return found | {name: (mask, 0.0) for name, mask in beyond.items() if output(name).along == "key"}


def _rows_without_keys(problem: Problem) -> torch.Tensor:
    """Bool `[B, Hq, Sq]`. The bitmap is that of the problem: of keys in another order, or of some of them, it is given and not drawn."""
    import torch

    from flashverify.case.masks.predicate import visible, visible_parts

    case, device = problem.case, problem.q.device
    if problem.bitmap is not None:
        seen = functools.reduce(torch.logical_and, (visible_parts(case, device) | {"bitmap": problem.bitmap}).values())
        return ~seen.any(-1).expand(case.shape_o[:3])
    see = visible(case, device)
    if see is None or case.seq_k == 0:
        return torch.full(case.shape_o[:3], case.seq_k == 0, device=device)
    parts = [
        ~see(slice(first, min(first + _ROWS, case.seq_q)), slice(0, case.seq_k)).any(-1)
        for first in range(0, max(case.seq_q, 1), _ROWS)
    ]
    return torch.cat(parts, -1).expand(case.shape_o[:3])
