"""What a kernel returns, in the arrangement in which it is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.wiring.rows import batched, tokens
from flashverify.errors import UsageError

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem
    from flashverify.case.wiring.rows import Along

__all__ = ["LSE_LAYOUTS", "O_LAYOUTS", "rearranged"]

O_LAYOUTS = ("bhsd", "bshd", "thd", "htd")
LSE_LAYOUTS = ("bhs", "bsh", "th", "ht")


def rearranged(
    problem: Problem, x: torch.Tensor, layout: str, along: Along, name: str, argument: str = "layout"
) -> torch.Tensor:
    """A tensor with an element per head and row or key, as `[B, H, S]` or `[B, H, S, D]`.

    Args:
        problem: that it was computed from.
        x: what the kernel returned.
        layout: order of its axes: b sequences, h heads, s rows or keys of a sequence, t those of all sequences, d channels.
        along: whether s and t count rows or keys.
        name: of x in errors.
        argument: the name under which the caller passed the layout.

    Raises:
        UsageError: the layout is unknown, or x does not have it.
    """
    axes = LSE_LAYOUTS if name == "lse" else O_LAYOUTS
    if layout not in axes:
        raise UsageError(f"{argument}={layout!r} is not accepted: one of {', '.join(axes)}")
    case = problem.case
    size = case.seq_q if along == "row" else case.seq_k
    known = {"b": case.batch, "s": size, "t": tokens(problem, along)}
    known["h"] = case.heads_q if along == "row" else case.heads_kv
    expected = [known.get(axis, "D") for axis in layout]
    shape = list(x.shape)
    if len(shape) != len(expected) or any(n != "D" and n != m for n, m in zip(expected, shape, strict=True)):
        text = "[" + ", ".join(map(str, expected)) + "]"
        raise UsageError(f"{name} is {shape}; accepted with {argument}={layout!r}: {text}")
    if "t" in layout:
        x, layout = batched(problem, x.movedim(layout.index("t"), 0), along), "bs" + layout.replace("t", "")
    return x.permute([layout.index(axis) for axis in "bhsd"[: x.dim()]])
