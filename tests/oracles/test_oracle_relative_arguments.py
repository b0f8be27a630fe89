"""What the two oracles refuse of the buckets whose gradient is asked for."""

from functools import partial
from typing import Any

import pytest
import torch

from flashverify_oracles import backward, exact_attention, forward

PAIRS = torch.zeros(3, 3, dtype=torch.int32)
BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"relative_buckets": PAIRS}, ValueError, "relative_buckets is given alone: the gradient of the table needs"),
    ({"bucket_count": 2}, ValueError, "bucket_count is given alone: the gradient of the table needs"),
    ({"relative_buckets": PAIRS, "bucket_count": 0}, ValueError, "bucket_count must be .*positive.*, got 0"),
    ({"relative_buckets": PAIRS + 2, "bucket_count": 2}, ValueError, r"relative_buckets must be in \[0, 2\), got .*2"),
    ({"relative_buckets": PAIRS - 1, "bucket_count": 2}, ValueError, r"relative_buckets must be in \[0, 2\), got .*-1"),
    ({"relative_buckets": PAIRS.float(), "bucket_count": 2}, TypeError, "relative_buckets must .* an integer dtype"),
    ({"relative_buckets": PAIRS.bool(), "bucket_count": 2}, TypeError, "relative_buckets must .* an integer dtype"),
    (
        {"relative_buckets": PAIRS[:2], "bucket_count": 2},
        ValueError,
        r"relative_buckets must broadcast to \(1, 2, 3, 3",
    ),
    (
        {"relative_buckets": lambda rows, keys: PAIRS[:2], "bucket_count": 2},
        ValueError,
        r"relative_buckets must broadcast to \(1, 2, 3, 3\), got \(2, 3\)",
    ),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
@pytest.mark.parametrize("oracle", ["float64", "mpmath"])
def test_bad_arguments_are_named(oracle: str, change: dict[str, Any], error: type[Exception], message: str) -> None:
    q = torch.zeros(1, 2, 3, 4)
    fwd = forward(q, q, q, scale=1.0)

    ask = partial(backward, forward=fwd) if oracle == "float64" else exact_attention
    with pytest.raises(error, match=message):
        ask(q, q, q, q, scale=1.0, **change)


def test_a_source_or_a_count_of_the_wrong_type_is_named() -> None:
    q = torch.zeros(1, 2, 3, 4)
    fwd = forward(q, q, q, scale=1.0)

    with pytest.raises(
        TypeError, match=r"relative_buckets must be an integer tensor or a callable \(rows, keys\), got 3"
    ):
        backward(q, q, q, q, scale=1.0, forward=fwd, relative_buckets=3, bucket_count=2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"bucket_count must be an int, got 2.0 \(type=float\)"):
        backward(q, q, q, q, scale=1.0, forward=fwd, relative_buckets=PAIRS, bucket_count=2.0)  # type: ignore[arg-type]


def test_the_gradient_of_the_table_needs_that_of_the_output() -> None:
    q = torch.zeros(1, 2, 3, 4)

    with pytest.raises(ValueError, match="relative_buckets is given without do: it belongs to the gradients"):
        exact_attention(q, q, q, scale=1.0, relative_buckets=PAIRS, bucket_count=2)
