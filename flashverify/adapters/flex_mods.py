"""The mask and the modifiers of a case as the functions of positions that FlexAttention takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from flashverify.case.problem import Problem

    Condition = Callable[[Any, Any, Any, Any], torch.Tensor]

__all__ = ["mask_mod_of", "score_mod_of"]


def mask_mod_of(p: Problem) -> Condition | None:
    """A function of (sequence, head, row, key): whether the row sees the key; None where every row sees every key."""
    from flashverify.case.masks.positions import positions

    mask, at = p.case.mask, positions(p.case, p.q.device)
    parts = mask.parts()
    where = at.row + at.shift
    conditions: list[Condition] = []
    if mask.packed is not None:
        conditions.append(lambda b, h, i, j: at.row_sequence[b, i] == at.key_sequence[b, j])
    if mask.packed is not None or p.key_lengths is not None:
        conditions.append(lambda b, h, i, j: at.key[b, j] < at.keys[b, i])
    if p.query_lengths is not None:
        conditions.append(lambda b, h, i, j: at.row[b, i] < at.rows[b, i])
    if mask.causal is not None:
        conditions.append(_causal(p, where, at.row_sequence, at.key))
    left, right = mask.window or (None, None)
    if left is not None:
        conditions.append(lambda b, h, i, j: at.key[b, j] >= where[b, i] - left)
    if right is not None:
        conditions.append(lambda b, h, i, j: at.key[b, j] <= where[b, i] + right)
    if p.bitmap is not None:
        bitmap = p.bitmap.expand(p.case.batch, p.case.heads_q, -1, -1)
        conditions.append(lambda b, h, i, j: bitmap[b, h, i, j])
    if p.blocks is not None and mask.blocks is not None:
        blocks, height, width = (
            p.blocks.expand(p.case.batch, p.case.heads_q, -1, -1),
            mask.blocks.rows,
            mask.blocks.keys,
        )
        conditions.append(lambda b, h, i, j: blocks[b, h, i // height, j // width])
    return _all(conditions) if parts else None


def score_mod_of(p: Problem) -> Callable[..., torch.Tensor] | None:
    """A function of (logit, sequence, head, row, key): softcap, then ALiBi and the bias; None where the case has none of them."""
    import torch

    from flashverify.case.masks.positions import positions

    cap, slopes = p.softcap, p.slopes
    bias = None if p.bias is None else p.bias.expand(p.case.batch, p.case.heads_q, -1, -1)
    if cap is None and slopes is None and bias is None:
        return None
    at = positions(p.case, p.q.device)
    where = at.row + at.shift

    def mod(s: torch.Tensor, b: Any, h: Any, i: Any, j: Any) -> torch.Tensor:
        if cap is not None:
            s = cap * torch.tanh(s / cap)
        if slopes is not None:
            s = s - slopes[h] * (at.key[b, j] - where[b, i]).abs()
        return s if bias is None else s + bias[b, h, i, j]

    return mod


def _causal(p: Problem, where: torch.Tensor, row_sequence: torch.Tensor, key: torch.Tensor) -> Condition:
    """No key behind the row's position, but for those of its prefix."""
    import torch

    if p.prefix_lengths is None:
        return lambda b, h, i, j: key[b, j] <= where[b, i]
    prefix = torch.nn.functional.pad(p.prefix_lengths, (0, 1))  # none behind the last packed sequence
    return lambda b, h, i, j: (key[b, j] <= where[b, i]) | (key[b, j] < prefix[row_sequence[b, i]])


def _all(conditions: list[Condition]) -> Condition:
    def mod(b: Any, h: Any, i: Any, j: Any) -> torch.Tensor:
        seen = conditions[0](b, h, i, j)
        for condition in conditions[1:]:
            seen = seen & condition(b, h, i, j)
        return seen

    return mod
