"""The relative position bias: its definition pair by pair, the buckets of T5 as published, and arguments."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from flashverify_oracles import relative_bias, relative_buckets, t5_buckets
from tests.oracles.relative import BUCKETS, DISTANCE_BUCKETS, LAYOUTS, positions, table_of

ROW = torch.zeros(1, 2, dtype=torch.int32)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_bias_is_the_entry_of_the_clipped_distance(layout: str) -> None:
    row, key, _ = positions(layout, 2, 5, 9)
    table = table_of(3)

    bias, buckets = relative_bias(table, DISTANCE_BUCKETS, row, key), relative_buckets(DISTANCE_BUCKETS, row, key)

    assert (bias.shape, bias.dtype) == ((2, 3, 5, 9), torch.float64)
    assert (buckets.shape, buckets.dtype) == ((2, 1, 5, 9), torch.int64)
    for b, h, i, j in torch.cartesian_prod(*(torch.arange(n) for n in bias.shape)).tolist():
        distance = int(key[b, j]) - int(row[b, i])
        place = 0 if distance < -3 else 6 if distance > 3 else distance + 3
        assert int(buckets[b, 0, i, j]) == int(DISTANCE_BUCKETS[place])
        assert float(bias[b, h, i, j]) == float(table[h, DISTANCE_BUCKETS[place]])


def test_positions_of_any_size_are_clipped() -> None:
    row = torch.tensor([[-(2**31), 2**31 - 1]], dtype=torch.int32)

    assert relative_buckets(DISTANCE_BUCKETS, row, row.flip(1)).flatten().tolist() == [5, 1, 1, 5]


def test_a_reach_of_zero_is_one_bucket() -> None:
    bias = relative_bias(torch.tensor([[0.5], [-1.0]]), torch.tensor([0]), ROW, ROW)

    assert torch.equal(bias, torch.tensor([0.5, -1.0]).double().view(1, 2, 1, 1).expand(1, 2, 2, 2))


def published(distance: Tensor, buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """The rule of T5 as its authors wrote it, with logarithms; `distance` is key - query."""
    found = torch.zeros_like(distance)
    n = -distance
    if bidirectional:
        buckets //= 2
        found += (n < 0) * buckets
        n = n.abs()
    else:
        n = n.clamp(min=0)
    own = buckets // 2
    far = torch.log(n.clamp(min=1).float() / own) / math.log(max_distance / own) * (buckets - own)
    return found + torch.where(n < own, n, (own + far.long()).clamp(max=buckets - 1))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_buckets_of_t5_are_those_of_the_published_rule(bidirectional: bool) -> None:
    table = t5_buckets(32, 128, bidirectional)

    assert (table.shape, table.dtype) == ((257,), torch.int32)
    assert torch.equal(table.long(), published(torch.arange(-128, 129), 32, 128, bidirectional))
    # Beyond its reach the rule is constant: clipping loses nothing.
    far = torch.tensor([[-(10**6), 10**6]])
    assert torch.equal(
        relative_buckets(table, torch.zeros(1, 1, dtype=torch.int64), far).flatten(),
        published(far, 32, 128, bidirectional).flatten(),
    )


def test_the_first_distances_of_the_buckets_of_t5() -> None:
    # Eight buckets a side from 8 on, to 128: they start at 8 * 2^(k / 2), exact powers of two included.
    behind = t5_buckets(32, 128, True)[:129].flip(0).tolist()

    assert [behind.index(bucket) for bucket in range(8, 16)] == [8, 12, 16, 23, 32, 46, 64, 91]
    assert behind[:8] == list(range(8))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(4, 3), (4, 27), (6, 5), (10, 100), (64, 200), (128, 513)])
def test_every_bucket_of_t5_starts_where_the_definition_says(
    buckets: int, max_distance: int, bidirectional: bool
) -> None:
    table = t5_buckets(buckets, max_distance, bidirectional).tolist()

    side = buckets // 2 if bidirectional else buckets
    own = side // 2
    for n in range(max_distance + 1):
        found = table[max_distance - n]
        if n < own:
            assert found == n
        else:
            # Entry own + k holds n if (n / own)^(side - own) is in [(max_distance / own)^k, (max_distance / own)^(k + 1)).
            k, parts = found - own, side - own
            assert n**parts * own**k >= max_distance**k * own**parts
            assert found == side - 1 or n**parts * own ** (k + 1) < max_distance ** (k + 1) * own**parts
        if n:
            assert table[max_distance + n] == (side + found if bidirectional else 0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"table": torch.zeros(2, 6, dtype=torch.int32)},
            TypeError,
            "table must be a floating tensor, got torch.int32",
        ),
        ({"table": [0.0]}, TypeError, "table must be a floating tensor, got list"),
        ({"table": torch.zeros(6)}, ValueError, r"table must have the shape \[Hq, buckets\], got \(6,\)"),
        ({"table": torch.zeros(2, 5)}, ValueError, r"distance_buckets must be in \[0, 5\), got values in \[0, 5\]"),
        ({"distance_buckets": -DISTANCE_BUCKETS}, ValueError, r"must be in \[0, 6\), got values in \[-5, 0\]"),
        ({"distance_buckets": DISTANCE_BUCKETS[1:]}, ValueError, r"must have an odd length 2 \* reach \+ 1, got 6"),
        ({"distance_buckets": DISTANCE_BUCKETS[:0]}, ValueError, r"must have an odd length 2 \* reach \+ 1, got 0"),
        ({"distance_buckets": DISTANCE_BUCKETS[None]}, ValueError, r"must have 1 dimensions, got \(1, 7\)"),
        ({"distance_buckets": DISTANCE_BUCKETS.float()}, TypeError, "must be an integer tensor, got torch.float32"),
        ({"row": ROW.bool()}, TypeError, "row must be an integer tensor, got torch.bool"),
        ({"key": ROW[0]}, ValueError, r"key must have 2 dimensions, got \(2,\)"),
        ({"row": ROW.to("meta")}, ValueError, "row must be on the device of distance_buckets, cpu, got meta"),
        ({"table": torch.zeros(2, 6, device="meta")}, ValueError, "table must be on the device of .*, cpu, got meta"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    given: dict[str, Any] = {"table": table_of(2), "distance_buckets": DISTANCE_BUCKETS, "row": ROW, "key": ROW}
    assert given["table"].shape[1] == BUCKETS

    with pytest.raises(error, match=message):
        relative_bias(**(given | change))


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((1, 8, False), "buckets must be at least 2 with bidirectional=False, got 1"),
        ((2, 8, True), "buckets must be an even number from 4 on with bidirectional=True, got 2"),
        ((7, 8, True), "buckets must be an even number from 4 on with bidirectional=True, got 7"),
        ((32, 16, False), "max_distance must be greater than 16 with buckets=32, got 16"),
    ],
)
def test_numbers_that_make_no_buckets_are_named(numbers: tuple[int, int, bool], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        t5_buckets(*numbers)
