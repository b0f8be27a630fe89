"""What the two oracles refuse of softcap, biases, sinks and dropout."""

import math
from typing import Any

import pytest
import torch

from flashverify_oracles import backward, exact_attention, forward

INF = math.inf
BOOL, FLOAT = torch.ones(3, 5, dtype=torch.bool), torch.ones(3, 5)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"softcap": -1.0}, ValueError, "softcap must be positive, or 0 or None for no cap, got -1.0"),
        ({"softcap": INF}, ValueError, "softcap must be finite, got inf"),
        ({"biases": FLOAT}, TypeError, "biases must be a sequence of tensors or callables"),
        (
            {"biases": [None]},
            TypeError,
            r"biases\[0\] must be a floating tensor or a callable \(rows, keys\), got None",
        ),
        ({"biases": [FLOAT, BOOL]}, TypeError, r"biases\[1\] must have a floating dtype, got torch.bool"),
        ({"biases": [FLOAT.mT]}, ValueError, r"biases\[0\] must broadcast to \(1, 2, 3, 5\), got \(5, 3\)"),
        ({"sink": torch.zeros(3)}, ValueError, r"sink must have the shape \(2,\), got \(3,\)"),
        ({"keep": FLOAT}, TypeError, "keep must have dtype torch.bool, got torch.float32"),
        ({"keep": BOOL, "dropout": 1.0}, ValueError, r"dropout must be in \[0, 1\), got 1.0"),
        ({"dropout": 0.5}, ValueError, "keep must be given with dropout=0.5"),
    ],
)
def test_bad_arguments_of_float64_are_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    q, k = torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 5, 4)

    with pytest.raises(error, match=message):
        forward(q, k, k, scale=1.0, **change)


def test_a_bias_shape_that_does_not_broadcast_is_named() -> None:
    q = torch.zeros(1, 2, 3, 4)

    with pytest.raises(ValueError, match=r"bias_shape must broadcast to \(1, 2, 3, 3\), got \(4, 3\)"):
        backward(q, q, q, q, scale=1.0, forward=forward(q, q, q, scale=1.0), bias_shape=(4, 3))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"softcap": -1.0}, ValueError, "softcap must be finite and positive"),
        ({"biases": [torch.ones(3, 3) > 0]}, TypeError, r"biases\[0\] must give a tensor of a floating dtype"),
        ({"biases": [torch.ones(4, 3)]}, ValueError, r"biases\[0\] must broadcast to \(1, 2, 3, 3\), got \(4, 3\)"),
        ({"sink": torch.zeros(3)}, ValueError, r"sink must have the shape \(2,\), got \(3,\)"),
        ({"keep": torch.ones(3, 3)}, TypeError, "keep must give a tensor of dtype torch.bool"),
        ({"dropout": 1.0}, ValueError, r"dropout must be in \[0, 1\), got 1.0"),
        ({"dropout": 0.5}, ValueError, "keep must be given with dropout=0.5"),
        ({"bias_shape": (3, 3)}, ValueError, "bias_shape is given without do"),
        ({"do": torch.zeros(1, 2, 3, 4), "bias_shape": (4, 3)}, ValueError, r"bias_shape must broadcast to \(1, 2, 3"),
    ],
)
def test_bad_arguments_of_mpmath_are_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    q = torch.zeros(1, 2, 3, 4)

    with pytest.raises(error, match=message):
        exact_attention(q, q, q, scale=1.0, **change)
