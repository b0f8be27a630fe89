"""The usual test of a kernel, random inputs and a tolerance, and the one of docs/tutorial.md."""

import pytest
import torch
from attention import attention


def test_attention():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 128, 64) for _ in range(3))
    row = torch.arange(128)
    seen = (row[None, :] <= row[:, None]) & (row[None, :] >= row[:, None] - 32)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    assert torch.allclose(attention(q, k, v, 0.125, 32)[0], expected, atol=1e-2, rtol=1e-2)


@pytest.mark.flashverify("attention:mine", cases=20)
def test_mine():
    """Twenty drawn cases."""
