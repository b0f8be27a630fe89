"""What runs: lengths, heads, head dims, strides, gradients. A raise is a case that the subject does not take."""

import pytest
import torch

from flashverify import Supports
from tests.probing.attention import attention, inferred, probed, suspects


def refusing(condition, message):
    def function(p):
        if condition(p):
            raise ValueError(message)
        return attention(p)

    return function


@pytest.mark.thorough
def test_whole_tiles_and_squares_are_declared_where_the_rest_raises():
    found = probed(
        refusing(lambda p: p.q.shape[2] % 32 or p.q.shape[2] != p.k.shape[2], "whole tiles"), "lengths", name="tiles"
    )

    assert (inferred(found)["seq_multiple"], inferred(found)["square"]) == ("32", "True")
    assert not found.suspects


@pytest.mark.slow
def test_wrong_tails_are_a_defect_with_what_would_declare_it():
    def tails(p):
        whole = p.k.shape[2] // 16 * 16 or p.k.shape[2]
        return attention(p, mask=torch.arange(p.k.shape[2]) < whole)

    found = probed(tails, "lengths")

    assert suspects(found) == ["lengths that are no multiple of a tile"]
    assert found.suspects[0].declare == "Supports(seq_multiple=16)"
    assert "seq_multiple=" not in found.code.split("# ")[0]


def test_few_rows_alone_are_declared():
    found = probed(refusing(lambda p: p.q.shape[2] > 8, "a decode kernel"), "lengths", name="decode")

    assert inferred(found)["max_seq_q"] == "8"


@pytest.mark.slow
def test_heads_groups_and_batches_are_declared_as_they_run():
    found = probed(refusing(lambda p: p.q.shape[1] != p.k.shape[1] or p.q.shape[0] > 1, "no groups"), "heads")

    assert inferred(found)["gqa"] == "False"
    assert "case.batch != 1" in inferred(found)["also"]
    assert (
        probed(refusing(lambda p: p.q.shape[1] == 3, "three heads"), "heads").code.count("heads_q=(1, 2, 8, 32)") == 1
    )


def test_groups_that_only_broadcasting_allows_are_refused_by_a_rule():
    def broadcasting(p):
        if 1 < p.k.shape[1] < p.q.shape[1]:
            raise ValueError("sizes do not match")
        return attention(p)

    found = probed(broadcasting, "heads")

    assert "1 < case.heads_kv < case.heads_q" in found.code
    assert "group_sizes" not in found.code


def test_powers_of_two_are_declared_as_a_list_of_head_dims():
    found = probed(
        refusing(lambda p: p.q.shape[3] & (p.q.shape[3] - 1) or p.v.shape[3] != p.q.shape[3], "dim"), "head dims"
    )

    assert inferred(found)["equal_dims"] == "True"
    assert "<= {8, 16, 32, 64, 128, 256}" in inferred(found)["also"]


def test_the_code_to_paste_declares_what_was_inferred():
    function = refusing(lambda p: p.q.shape[3] % 16 or p.q.shape[2] != p.k.shape[2], "whole")
    found = probed(function, "lengths", "head dims", "scales")
    scope = {}
    exec(found.code.replace("    ...", "    return None"), scope)
    pasted = next(value for name, value in scope.items() if hasattr(value, "supports"))

    assert pasted.supports == Supports(square=True, dim_multiple=16, scales=("positive", "zero", "negative"))


def test_a_raise_on_strided_tensors_is_contiguous_and_a_wrong_value_is_a_defect():
    raising = probed(refusing(lambda p: not p.k.is_contiguous() or p.k.data_ptr() % 16, "contiguous"), "storage")

    assert "contiguous=True" in raising.code
    assert not raising.suspects

    def flat(p):
        k = torch.as_strided(p.k, p.k.shape, torch.empty(p.k.shape).stride(), p.k.storage_offset())
        return attention(type("P", (), {"q": p.q, "k": k, "v": p.v, "scale": p.scale}))

    wrong = probed(flat, "storage")
    assert "rows with gaps between them" in suspects(wrong)
    assert "contiguous=True" not in wrong.code.split("# ")[0]


def test_a_function_without_gradients_is_forward_only():
    def detached(p):
        return tuple(x.detach() for x in attention(p))

    found = probed(detached)

    assert "backward=False" in found.code
    assert not found.suspects


@pytest.mark.slow
def test_a_wrong_gradient_is_a_defect_and_no_longer_judged():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    def doubled(p):
        return attention(type("P", (), {"q": p.q, "k": Doubled.apply(p.k), "v": p.v, "scale": p.scale}))

    found = probed(doubled, forms=("fp32",))

    assert suspects(found) == ["dk"]


@pytest.mark.slow
def test_without_time_the_rest_is_said_to_be_undecided():
    found = probed(attention, "lengths", "heads", seconds=1e-3 + 0.05)

    assert not found.finished
    assert any("for lack of time" in text for text in found.undecided)
