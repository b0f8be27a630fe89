"""Two ways to a format of 16 bits give the same bits."""

import numpy as np
import pytest

from flashverify.case.values import philox
from flashverify.case.values.bits import to_bits


@pytest.mark.parametrize(("dtype", "one", "mantissa"), [("bf16", 0x3F80, 7), ("fp16", 0x3C00, 10)])
def test_a_number_has_the_same_bits_beside_numbers_that_fp32_does_not_hold(dtype, one, mantissa):
    exact = np.concatenate([philox.normal(1, "x", (500,)) * 2.0**power for power in range(-100, 120, 13)])
    half = 2.0 ** -(mantissa + 1)
    exact = np.append(exact, [sign * (1 + odd * half) for sign in (-1, 1) for odd in range(256)])  # ties among them
    exact = np.append(exact, [65504.0, 65519.0, 65520.0, -65520.0, -0.0, np.inf, 3 * 2.0**-25, 2.0**-25, 2.0**-133])
    beside = to_bits(np.append(exact, 1 + 2.0**-40), dtype)

    assert to_bits(exact, dtype).tolist() == beside[:-1].tolist()
    assert beside[-1] == one


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_the_bits_of_a_number_do_not_depend_on_how_the_array_lies_in_memory(dtype):
    values = philox.normal(1, "x", (6, 10))

    assert to_bits(values[::2, ::-3], dtype).tolist() == to_bits(values, dtype)[::2, ::-3].tolist()
    assert to_bits(values.T, dtype).tolist() == to_bits(values, dtype).T.tolist()
