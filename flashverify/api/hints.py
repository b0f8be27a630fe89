"""What a failure of `assert_attention_close` says beside the numbers: the layout under which the tensors would be right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.api.layouts import AXES, fitting_layouts, shape_in
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from flashverify.api.arguments import Arguments

    Judged = Callable[[str, str], tuple[object, list[str]]]

__all__ = ["shape_hint", "value_hints"]


def shape_hint(
    name: str,
    tensor: torch.Tensor,
    shape: Sequence[int],
    arguments: Arguments,
    outputs: dict[str, torch.Tensor],
) -> tuple[tuple[int, ...], str]:
    """The shape that an output should have in the caller's layout, and what would make its own the right one.

    Args:
        name: of the output.
        tensor: the output, as it was given.
        shape: that it should have, `[B, H, S, D]` or `[B, H, S]`.
        arguments: the problem.
        outputs: all of them, as they were given.
    """
    wanted = shape_in(name, shape, arguments.layout)
    given = arguments.shapes | {other: tuple(x.shape) for other, x in outputs.items()}
    others = fitting_layouts(given, arguments.layout)
    if others:
        return wanted, f"; every shape fits layout={others[0]!r}, {AXES[others[0]]}"
    own = tuple(tensor.shape)
    for axis in range(len(own) - 1):
        if (*own[:axis], own[axis + 1], own[axis], *own[axis + 2 :]) == wanted:
            return wanted, f"; it fits with its axes {axis} and {axis + 1} exchanged"
    return wanted, ""


def value_hints(judged: Judged, layout: str, outputs: dict[str, torch.Tensor]) -> list[str]:
    """A sentence where every output is within its bounds under another layout, or once two axes of one output are exchanged.

    Args:
        judged: statistics and failures under a layout, with axes 1 and 2 of one output exchanged where it is named.
        layout: the one under which there are failures.
        outputs: as they were given.
    """
    if layout == "thd":
        return []
    other = "bshd" if layout == "bhsd" else "bhsd"
    if _right(judged, other, ""):
        return [f"under layout={other!r}, {AXES[other]}, every output is within its bounds"]
    square = [name for name, x in outputs.items() if x.dim() == 4 and x.shape[1] == x.shape[2] > 1]
    return [
        f"with axes 1 and 2 of {name} exchanged every output is within its bounds"
        for name in square
        if _right(judged, layout, name)
    ]


def _right(judged: Judged, layout: str, exchanged: str) -> bool:
    try:
        return not judged(layout, exchanged)[1]
    except UsageError:
        return False
