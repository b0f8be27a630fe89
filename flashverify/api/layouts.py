"""Layouts of the tensors that users hold, and the one that the harness works in: `[batch, heads, sequence, dim]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

__all__ = ["AXES", "LAYOUTS", "check_layout", "fits", "fitting_layouts", "from_bhsd", "index_in", "shape_in", "to_bhsd"]

AXES = {"bhsd": "[batch, heads, sequence, dim]", "bshd": "[batch, sequence, heads, dim]", "thd": "[tokens, heads, dim]"}
LAYOUTS = tuple(AXES)

_WITH_DIM = ("q", "k", "v", "o", "do", "dq", "dk", "dv")
_PER_ROW = ("lse", "delta", "dlse")
"""`[B, Hq, Sq]` in both dense layouts, `[Hq, T]` of packed tokens."""


def check_layout(layout: str) -> None:
    """Refuses what is no layout.

    Raises:
        UsageError: the message names the accepted ones.
    """
    if layout not in LAYOUTS:
        raise UsageError(f"layout={layout!r} is not accepted: one of {', '.join(map(repr, LAYOUTS))}")


def to_bhsd(name: str, tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """The tensor as `[B, H, S, D]`, one per row as `[B, H, S]`; others, such as a bias, as they are. A view."""
    if name in _WITH_DIM:
        if layout == "bshd" and tensor.dim() == 4:
            return tensor.transpose(1, 2)
        return tensor.transpose(0, 1).unsqueeze(0) if layout == "thd" and tensor.dim() == 3 else tensor
    return tensor.unsqueeze(0) if name in _PER_ROW and layout == "thd" and tensor.dim() == 2 else tensor


def from_bhsd(name: str, tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """Inverse of `to_bhsd`."""
    if name in _WITH_DIM and layout != "bhsd":
        return tensor.transpose(1, 2) if layout == "bshd" else tensor.squeeze(0).transpose(0, 1)
    return tensor.squeeze(0) if name in _PER_ROW and layout == "thd" else tensor


def shape_in(name: str, shape: Sequence[int], layout: str) -> tuple[int, ...]:
    """The shape that a tensor of shape `[B, H, S, D]` or `[B, H, S]` has in a layout."""
    if layout == "bhsd" or name not in (*_WITH_DIM, *_PER_ROW) or not shape:
        return tuple(shape)
    b, h, s, *rest = shape
    if name in _PER_ROW:
        return (h, s) if layout == "thd" else (b, h, s)
    return (s, h, *rest) if layout == "thd" else (b, s, h, *rest)


def index_in(name: str, index: Sequence[int], layout: str) -> tuple[int, ...]:
    """An index into `[B, H, S, D]` as one into the tensor of a layout."""
    return shape_in(name, index, layout)


def fits(q: Sequence[int], k: Sequence[int], v: Sequence[int], layout: str) -> bool:
    """Whether shapes of q, k and v belong together in a layout."""
    axes = 3 if layout == "thd" else 4
    if any(len(shape) != axes for shape in (q, k, v)):
        return False
    order = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "thd": (1, 0, 2)}[layout]
    *batch_q, heads_q, _rows, dim_q = (q[axis] for axis in order)
    *batch_k, heads_k, keys, dim_k = (k[axis] for axis in order)
    *batch_v, heads_v, keys_v, _dim_v = (v[axis] for axis in order)
    alike = batch_q == batch_k == batch_v and dim_q == dim_k and (heads_k, keys) == (heads_v, keys_v)
    return alike and heads_k > 0 and heads_q % heads_k == 0 and heads_q > 0


def fitting_layouts(shapes: Mapping[str, Sequence[int]], besides: str) -> tuple[str, ...]:
    """The other layouts in which every given shape belongs to the others.

    Args:
        shapes: of q, k, v and of outputs, by name, as the user gave them.
        besides: the layout that was named.
    """
    found = []
    for layout in LAYOUTS:
        if layout == besides or not fits(shapes["q"], shapes["k"], shapes["v"], layout):
            continue
        q, k, v = (_bhsd(shapes[name], layout) for name in "qkv")
        o = (*q[:3], v[3])
        wanted = {"o": o, "do": o, "dq": q, "dk": k, "dv": v, **dict.fromkeys(_PER_ROW, q[:3])}
        if all(
            tuple(shape) == shape_in(name, wanted[name], layout) for name, shape in shapes.items() if name in wanted
        ):
            found.append(layout)
    return tuple(found)


def _bhsd(shape: Sequence[int], layout: str) -> tuple[int, ...]:
    if layout == "thd":
        return (1, shape[1], shape[0], shape[2])
    return (shape[0], shape[2], shape[1], shape[3]) if layout == "bshd" else tuple(shape)
