"""Worked examples of a textbook on FlashAttention, to the digits that it prints; where it misprints, the test says so."""

import math

import pytest
import torch
from torch import Tensor

from flashverify_oracles import exact_attention, forward, max_abs_difference

HALF_DIGIT_4, HALF_DIGIT_3 = 0.5e-4, 0.5e-3

TILED_Q = [[1.0, 0.5], [0.8, -0.1], [0.2, 0.9], [-0.3, 0.4], [0.7, 0.6], [0.1, -0.5]]
TILED_K = [[0.3, 0.7], [0.6, 0.2], [-0.1, 0.8], [0.4, -0.3], [0.9, 0.1], [0.2, 0.5]]
TILED_V = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]]

# Node n of the speculative tree: its parent, and the row of the printed mask (A to I).
PARENTS = [None, 0, 1, 1, 2, 2, 3, 3, 4]
TREE = [
    "100000000",
    "110000000",
    "111000000",
    "110100000",
    "111010000",
    "111001000",
    "110100100",
    "110100010",
    "111010001",
]


def head(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)[None, None]


def softmax(scores: list[float]) -> tuple[list[float], float, float]:
    """Weights read off through V = identity, with the row sum exp(lse - max) and the maximum."""
    n = len(scores)
    result = forward(
        head([[1.0]]), head([[s] for s in scores]), torch.eye(n, dtype=torch.float64)[None, None], scale=1.0
    )
    return result.o.flatten().tolist(), math.exp(float(result.lse - result.row_max)), float(result.row_max)


@pytest.mark.parametrize(
    ("seen", "row_sum", "row_max"), [(1, 1.0, 2.0), (2, 1.0498, 5.0), (3, 1.0681, 5.0), (4, 1.4360, 5.0)]
)
def test_online_softmax_trace(seen: int, row_sum: float, row_max: float) -> None:
    _, got_sum, got_max = softmax([2.0, 5.0, 1.0, 4.0][:seen])

    assert got_sum == pytest.approx(row_sum, abs=HALF_DIGIT_4)
    assert got_max == row_max


def test_online_softmax_weights() -> None:
    weights, _, _ = softmax([2.0, 5.0, 1.0, 4.0])

    assert weights == pytest.approx([0.0347, 0.6964, 0.0128, 0.2562], abs=HALF_DIGIT_4)
    # The printed sum 1.0001 is that of the rounded weights.
    assert sum(weights) == pytest.approx(1.0, abs=1e-15)


def test_attention_of_one_query_over_three_keys() -> None:
    q, k = head([[1.0, 0.0]]), head([[0.5, 0.3], [0.8, -0.2], [0.1, 0.7]])
    v = head([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])

    result = forward(q, k, v, scale=1.0)
    weights, row_sum, _ = softmax([0.5, 0.8, 0.1])

    assert row_sum == pytest.approx(2.2374, abs=HALF_DIGIT_4)
    # Printed 0.4470 for the second weight: 1 / 2.23740 = 0.44695 rounds to 0.4469.
    assert weights == pytest.approx([0.3311, 0.4469, 0.2219], abs=HALF_DIGIT_4)
    assert abs(weights[1] - 0.4470) > HALF_DIGIT_4
    # Printed [0.4421, 0.5579] from the stream and [0.4421, 0.5580] in its "verification": the first is right.
    assert result.o.flatten().tolist() == pytest.approx([0.4421, 0.5579], abs=HALF_DIGIT_4)
    assert abs(float(result.o[..., 1]) - 0.5580) > HALF_DIGIT_4


@pytest.mark.parametrize(
    ("seen", "unnormalised", "row_sum"),
    [(1, [1.0, 0.0], 1.0), (2, [0.7408, 1.0], 1.7408), (3, [0.9891, 1.2483], 2.2374)],
)
def test_attention_stream_step_by_step(seen: int, unnormalised: list[float], row_sum: float) -> None:
    k, v = [[0.5, 0.3], [0.8, -0.2], [0.1, 0.7]], [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    result = forward(head([[1.0, 0.0]]), head(k[:seen]), head(v[:seen]), scale=1.0)

    total = math.exp(float(result.lse - result.row_max))

    assert total == pytest.approx(row_sum, abs=HALF_DIGIT_4)
    assert (result.o * total).flatten().tolist() == pytest.approx(unnormalised, abs=HALF_DIGIT_4)


def test_tiled_causal_example() -> None:
    q, k, v = head(TILED_Q), head(TILED_K), head(TILED_V)
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    scale = 1 / math.sqrt(2)

    whole = forward(q, k, v, scale=scale, visible=causal)
    tiled = forward(q, k, v, scale=scale, visible=causal, _tile=(2, 3))

    assert whole.o[0, 0, 0].tolist() == [1.0, 0.0]
    assert whole.o[0, 0, 1].tolist() == pytest.approx([0.449, 0.551], abs=HALF_DIGIT_3)
    assert whole.row_max[0, 0, :2].tolist() == pytest.approx([0.460, 0.325], abs=HALF_DIGIT_3)
    assert math.exp(float(whole.lse[0, 0, 1] - whole.row_max[0, 0, 1])) == pytest.approx(1.8146, abs=HALF_DIGIT_4)
    # "Exactly the same result, bit for bit" holds in exact arithmetic only; in floating point the order of the sums shows.
    torch.testing.assert_close(tiled.o, whole.o, rtol=0, atol=2**-51)
    exact = exact_attention(q, k, v, scale=scale, visible=causal)
    assert max_abs_difference(exact.o, whole.o) < 2**-51
    assert max_abs_difference(exact.lse, whole.lse) < 2**-51


@pytest.mark.parametrize(
    ("row", "key", "score"),
    [(0, 0, 0.460), (0, 1, 0.495), (0, 2, 0.212), (1, 0, 0.120), (1, 1, 0.325), (1, 2, -0.113)],
)
def test_tiled_example_scores(row: int, key: int, score: float) -> None:
    # With one visible key the log-sum-exp is the score.
    only = torch.zeros(6, 6, dtype=torch.bool)
    only[row, key] = True

    result = forward(head(TILED_Q), head(TILED_K), head(TILED_V), scale=1 / math.sqrt(2), visible=only)

    assert float(result.lse[0, 0, row]) == pytest.approx(score, abs=HALF_DIGIT_3)


def test_the_printed_tree_mask_is_that_of_its_parents() -> None:
    for node, row in enumerate(TREE):
        ancestors, at = set(), node
        while at is not None:
            ancestors.add(at)
            at = PARENTS[at]
        assert [n for n, seen in enumerate(row) if seen == "1"] == sorted(ancestors)


def test_tree_attention_sees_ancestors_only() -> None:
    visible = torch.tensor([[seen == "1" for seen in row] for row in TREE])
    nothing = torch.zeros(1, 1, 9, 1, dtype=torch.float64)
    v = torch.eye(9, dtype=torch.float64)[None, None]

    # Equal scores: the weights are the mask, row by row divided by the depth of the node.
    result = forward(nothing, nothing, v, scale=1.0, visible=visible)

    depth = visible.sum(-1)
    assert depth.tolist() == [1, 2, 3, 3, 4, 4, 4, 4, 5]
    assert torch.equal(result.o[0, 0], visible / depth[:, None].double())
    assert torch.equal(result.lse[0, 0], depth.double().log())


def test_tree_attention_agrees_with_mpmath() -> None:
    visible = torch.tensor([[seen == "1" for seen in row] for row in TREE])
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 9, 4, generator=g) for _ in range(3))

    result = forward(q, k, v, scale=0.5, visible=visible)
    exact = exact_attention(q, k, v, scale=0.5, visible=visible)

    assert max_abs_difference(exact.o, result.o) < 2**-50
    assert max_abs_difference(exact.lse, result.lse) < 2**-50


def test_a_chain_is_causal() -> None:
    g = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 1, 9, 4, generator=g) for _ in range(3))
    chain = torch.zeros(9, 9, dtype=torch.bool)
    for node in range(9):
        chain[node] = chain[node - 1] if node else False
        chain[node, node] = True

    by_tree = forward(q, k, v, scale=0.5, visible=chain)
    causal = forward(q, k, v, scale=0.5, visible=torch.ones(9, 9, dtype=torch.bool).tril())

    assert torch.equal(by_tree.o, causal.o)
