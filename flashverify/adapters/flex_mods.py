"""The mask and the modifiers of a case as the functions of positions that FlexAttention takes.

torch compiles a function anew for another code, and for other Python numbers in it that it cannot keep as variables. So the code of a
function depends on the kinds of mask and modifiers alone, and what differs from case to case is captured in tensors, numbers too.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from flashverify.case.case import Case
    from flashverify.case.masks.positions import Extent, Positions
    from flashverify.case.problem import Problem

    Condition = Callable[[Any, Any, Any, Any], torch.Tensor]

__all__ = ["mask_mod_of", "score_mod_of"]


def mask_mod_of(p: Problem) -> Condition | None:
    """A function of (sequence, head, row, key): whether the row sees the key; None where every row sees every key."""
    mask, at = p.case.mask, _positions(p.case, p.q.device)
    where, key = _places(p)
    conditions: list[Condition] = []
    if mask.packed is not None:
        conditions.append(lambda b, h, i, j: at.row_sequence[b, i] == at.key_sequence[b, j])
    if mask.packed is not None or p.key_lengths is not None:
        conditions.append(lambda b, h, i, j: key(b, j) < at.keys[b, i])
    if p.query_lengths is not None:
        conditions.append(lambda b, h, i, j: at.row[b, i] < at.rows[b, i])
    if mask.causal is not None:
        conditions.append(_causal(p, at.row_sequence))
    window = zip(("left", "right"), mask.window or (None, None), strict=True)
    left, right = (None if size is None else _captured(p, size, side) for side, size in window)
    if left is not None:
        conditions.append(lambda b, h, i, j: key(b, j) >= where(b, i) - left)
    if right is not None:
        conditions.append(lambda b, h, i, j: key(b, j) <= where(b, i) + right)
    if p.bitmap is not None:
        bitmap = _table(p, p.bitmap)
        conditions.append(lambda b, h, i, j: bitmap[b, h, i, j])
    if p.blocks is not None and mask.blocks is not None:
        blocks, height, width = (
            _table(p, p.blocks),
            _captured(p, mask.blocks.rows, "height"),
            _captured(p, mask.blocks.keys, "width"),
        )
        conditions.append(lambda b, h, i, j: blocks[b, h, i // height, j // width])
    return _all(conditions) if conditions else None


def score_mod_of(p: Problem) -> Callable[..., torch.Tensor] | None:
    """A function of (logit, sequence, head, row, key): softcap, then ALiBi and the bias; None where the case has none of them."""
    import torch

    cap, slopes = None if p.softcap is None else _captured(p, p.softcap, "softcap"), p.slopes
    bias = None if p.bias is None else _table(p, p.bias)
    if cap is None and slopes is None and bias is None:
        return None
    where, key = _places(p)

    def mod(s: torch.Tensor, b: Any, h: Any, i: Any, j: Any) -> torch.Tensor:
        if cap is not None:
            s = cap * torch.tanh(s / cap)
        if slopes is not None:
            s = s - slopes[h] * (key(b, j) - where(b, i)).abs()
        return s if bias is None else s + bias[b, h, i, j]

    return mod


def _table(p: Problem, given: torch.Tensor) -> torch.Tensor:
    """A table of each sequence and head in memory of its own: other strides, or none of its own, are another compilation."""
    import torch

    return given.expand(p.case.batch, p.case.heads_q, -1, -1).clone(memory_format=torch.contiguous_format)


def _captured(p: Problem, number: float, name: str) -> torch.Tensor:
    """A number of a case without an axis, int64 or fp32.

    Captured as a Python float, it is a variable that torch's backward of a score_mod has no place for: torch 2.11 raises `all unwrapped
    values must be FakeTensor, int, or SymInt`, and 2.13 runs the function uncompiled. Calls share the tensor of a number and a name, which
    nobody writes to; two names have two of them, since torch compiles a function anew for one tensor that is captured twice.
    """
    return _number(number, name, p.q.device)


@functools.lru_cache(maxsize=64, typed=True)
def _number(number: float, name: str, device: torch.device) -> torch.Tensor:  # noqa: ARG001
    import torch

    return torch.tensor(number, dtype=torch.int64 if isinstance(number, int) else torch.float32, device=device)


def _positions(case: Case, device: torch.device) -> Positions:
    """Where the rows and keys of a case lie; calls share the tensors, which nobody writes to."""
    from flashverify.case.masks.positions import extent_of

    return _looked_up(extent_of(case), device)


@functools.lru_cache(maxsize=8)
def _looked_up(extent: Extent, device: torch.device) -> Positions:
    """Each in memory of its own: torch compiles a function anew for a tensor that begins elsewhere in its memory."""
    from flashverify.case.masks.positions import positions_of

    found = positions_of(extent, device)
    return dataclasses.replace(
        found, **{field.name: getattr(found, field.name).clone() for field in dataclasses.fields(found)}
    )


def _places(p: Problem) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """The position of (sequence, row) and the number of (sequence, key): looked up where sequences are packed."""
    at = _positions(p.case, p.q.device)
    if p.case.mask.packed is not None:
        where = at.row + at.shift
        return lambda b, i: where[b, i], lambda b, j: at.key[b, j]
    if not p.case.mask.aligned_at_end or not p.case.seq_q:
        return lambda b, i: i, lambda b, j: j
    shift = at.shift[:, 0].contiguous()
    return lambda b, i: i + shift[b], lambda b, j: j


def _causal(p: Problem, row_sequence: torch.Tensor) -> Condition:
    """No key behind the row's position, but for those of its prefix."""
    import torch

    where, key = _places(p)
    if p.prefix_lengths is None:
        return lambda b, h, i, j: key(b, j) <= where(b, i)
    prefix = torch.nn.functional.pad(p.prefix_lengths, (0, 1))  # none behind the last packed sequence
    return lambda b, h, i, j: (key(b, j) <= where(b, i)) | (key(b, j) < prefix[row_sequence[b, i]])


def _all(conditions: list[Condition]) -> Condition:
    def mod(b: Any, h: Any, i: Any, j: Any) -> torch.Tensor:
        seen = conditions[0](b, h, i, j)
        for condition in conditions[1:]:
            seen = seen & condition(b, h, i, j)
        return seen

    return mod
