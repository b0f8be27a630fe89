"""A relative bias as an argument of `assert_attention_close` and `oracle`: right outputs pass, those with one defect fail."""

import pytest
import torch

from flashverify import assert_attention_close, oracle

BUCKETS = [3, 3, 2, 1, 0, 4, 5, 6, 6]
ROWS, KEYS = torch.arange(24).view(-1, 1), torch.arange(32).view(1, -1)


def given(draw, attention, *, shift=8, next_head=0):
    """The tensors, the outputs of a kernel that measures distances with `shift`, and the options."""
    p = draw()
    table, buckets = p.normal(4, 7), torch.tensor(BUCKETS)
    bucket = buckets[(KEYS - ROWS - shift).clamp(-4, 4) + 4]
    bias = table.roll(next_head, 0)[:, bucket].expand(2, -1, -1, -1)
    right = attention(p.q, p.k, p.v, p.do, p.dlse, visible=(KEYS <= ROWS + 8), bias=bias)
    ds = right.pop("dbias")
    right["drelative_bias"] = torch.stack([ds.masked_fill(bucket != n, 0.0).sum((0, 2, 3)) for n in range(7)], -1)
    asked = {"do": p.do, "dlse": p.dlse, "causal": "bottom-right", "relative_bias": table, "distance_buckets": BUCKETS}
    return (p.q, p.k, p.v), right, asked


def test_right_outputs_pass_and_the_oracle_agrees(draw, attention):
    inputs, right, asked = given(draw, attention)
    stats = assert_attention_close(*inputs, **right, **asked)
    assert {s.mode for s in stats if s.output == "drelative_bias"} == {"end-to-end", "conditional"}
    exact = oracle(*inputs, **asked)
    assert exact.drelative_bias.dtype == torch.float64
    torch.testing.assert_close(exact.drelative_bias.float(), right["drelative_bias"], rtol=1e-4, atol=1e-4)
    assert not exact.drelative_bias[:, 4:].any()  # of keys after a row, which none sees


@pytest.mark.parametrize("defect", [{"shift": 0}, {"next_head": 1}], ids=["shift", "head"])
def test_a_wrong_table_or_distance_fails(draw, attention, defect):
    inputs, right, asked = given(draw, attention, **defect)
    with pytest.raises(AssertionError, match=r"o\["):
        assert_attention_close(*inputs, **right, **asked)


def test_a_wrong_gradient_fails_alone(draw, attention):
    inputs, right, asked = given(draw, attention)
    wrong = right | {"drelative_bias": right["drelative_bias"].roll(1, 1)}
    with pytest.raises(AssertionError, match=r"drelative_bias\[") as caught:
        assert_attention_close(*inputs, **wrong, **asked)
    assert "dq[" not in str(caught.value)
