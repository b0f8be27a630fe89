"""Two ways to bf16 give the same bits."""

import numpy as np

from flashverify.case.values import philox
from flashverify.case.values.bits import to_bits


def test_a_number_has_the_same_bf16_beside_numbers_that_fp32_does_not_hold():
    exact = np.concatenate([philox.normal(1, "x", (500,)) * 2.0**power for power in range(-100, 120, 13)])
    exact = np.append(exact, [sign * (1 + odd * 2.0**-8) for sign in (-1, 1) for odd in range(256)])  # ties among them
    beside = to_bits(np.append(exact, 1 + 2.0**-40), "bf16")

    assert to_bits(exact, "bf16").tolist() == beside[:-1].tolist()
    assert beside[-1] == 0x3F80
