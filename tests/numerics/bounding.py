"""Bounds of a problem with any features, from the float64 oracle."""

from typing import Any

from torch import Tensor

from flashverify.numerics import (
    BackwardBounds,
    BoundInputs,
    Form,
    ForwardBounds,
    OutputBound,
    backward_bounds,
    forward_bounds,
)
from flashverify_oracles import float64


def bounds(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, *, bias_shape: tuple[int, ...] | None = None, dlse: Tensor | None = None,
    vis: Any = None, dtype: str = "fp16", form: Form | None = None, chunk_elements: int = 1 << 21, **asked: Any,
) -> tuple[ForwardBounds, BackwardBounds]:  # fmt: skip
    asked["visible"] = vis
    truth = float64.forward(q, k, v, **asked)
    g = float64.backward(q, k, v, do, forward=truth, dlse=dlse, bias_shape=bias_shape, **asked)
    problem = BoundInputs.of(q, k, v, dtype=dtype, form=form, chunk_elements=chunk_elements, **asked)
    F = forward_bounds(problem, truth.o, truth.lse)
    values = {"dq": g.dq, "dk": g.dk, "dv": g.dv, "dbias": g.dbias, "dsink": g.dsink}
    backward_bounds(problem, do=do, o=truth.o, lse=truth.lse, dlse=dlse, **values)
    return F, backward_bounds(problem, do=do, o=truth.o, lse=truth.lse, dlse=dlse, forward=F, **values)


def outputs(found: tuple[ForwardBounds, BackwardBounds]) -> dict[str, OutputBound]:
    F, B = found
    named = {
        "o": F.o,
        "lse": F.lse,
        "delta": B.delta,
        "dq": B.dq,
        "dk": B.dk,
        "dv": B.dv,
        "dbias": B.dbias,
        "dsink": B.dsink,
    }
    return {name: x for name, x in named.items() if x is not None}
