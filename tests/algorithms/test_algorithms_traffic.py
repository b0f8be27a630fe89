"""Theorems 1, 2 and 5 and proposition 4 of FlashAttention, and operation counts, by counting what the kernels do."""

import pytest
import torch

from flashverify.interpreter.counters import count
from flashverify_kernels import Configs, LaunchConfig, Options
from flashverify_kernels.algorithms import (
    LiveBlocks,
    Setting,
    paper_backward,
    paper_forward,
    standard_backward,
    standard_forward,
    two_pass_backward,
    two_pass_forward,
)
from flashverify_kernels.launch import backward, forward

INPUTS = {"q_ptr", "k_ptr", "v_ptr", "o_ptr", "do_ptr", "dq_ptr", "dk_ptr", "dv_ptr"}


class Measured:
    """Accesses in elements: `loads` and `stores` by argument, both summed in `accesses`; `products` are multiply-adds."""

    def __init__(self, launches):
        self.loads, self.stores = {}, {}
        for launch in launches:
            for name, traffic in launch.traffic.items():
                self.loads[name] = self.loads.get(name, 0) + traffic.loads
                self.stores[name] = self.stores.get(name, 0) + traffic.stores
        self.accesses = sum(self.loads.values()) + sum(self.stores.values())
        self.products = sum(launch.multiply_adds for launch in launches)


def measure(algorithm, n, d, block_m, block_n, blocks=None):
    q, k, v, do = (torch.randn(1, 1, n, d, generator=torch.Generator().manual_seed(x)) for x in range(4))
    setting = Setting(scale=0.25, block_m=block_m, block_n=block_n, blocks=blocks)
    passes = {
        "paper": (paper_forward, paper_backward),
        "standard": (standard_forward, standard_backward),
        "two-pass": (two_pass_forward, two_pass_backward),
    }[algorithm]
    with count() as launches:
        found = passes[0](q, k, v, setting)
    there = Measured(launches)
    with count() as launches:
        passes[1](do, q, k, v, found, setting)
    return there, Measured(launches)


def bundled(n, d, block_m, block_n):
    q, k, v, do = (torch.randn(1, 1, n, d) for _ in range(4))
    config = LaunchConfig(block_m=block_m, block_n=block_n)
    options = Options(config=Configs(forward=config, dq=config, dkdv=config))
    with count() as launches:
        found = forward(q, k, v, options)
    there = Measured(launches)
    with count() as launches:
        backward(do, q, k, v, found.o, found.lse2, options)
    return there, Measured(launches)


@pytest.mark.parametrize("n", [64, 128])
@pytest.mark.parametrize("d", [16, 32])
def test_operations_are_those_of_the_products(n, d):
    square = n * n * d  # multiply-adds of one product; 2 operations each

    assert [x.products for x in measure("standard", n, d, 16, 32)] == [2 * square, 4 * square]
    assert [x.products for x in measure("paper", n, d, 16, 32)] == [2 * square, 5 * square]
    # S twice; then S and dP in both passes of the backward
    assert [x.products for x in measure("two-pass", n, d, 16, 32)] == [3 * square, 7 * square]
    # dQ and dK, dV apart: S and dP twice
    assert [x.products for x in bundled(n, d, 16, 32)] == [2 * square, 7 * square]


def test_theorem_1_extra_memory_is_linear():
    for n in (64, 128):
        there, back = measure("paper", n, 16, 16, 32)
        assert set(there.stores) - INPUTS == {"m_ptr", "l_ptr"}
        assert set(back.stores) - INPUTS == {"m_ptr", "l_ptr"}
        assert (back.stores["m_ptr"], back.stores["l_ptr"]) == (0, 0)

        there, back = measure("two-pass", n, 16, 16, 32)
        assert {name: x for name, x in there.stores.items() if x} == {"m_ptr": n, "l_ptr": n, "o_ptr": n * 16}
        gradients = {"dq_ptr": n * 16, "dk_ptr": n * 16, "dv_ptr": n * 16}
        assert {name: x for name, x in back.stores.items() if x} == {"delta_ptr": n, **gradients}

        there, back = measure("standard", n, 16, 16, 32)
        assert there.stores["s_ptr"] == there.stores["p_ptr"] == n * n
        assert back.stores["dp_ptr"] == back.stores["ds_ptr"] == n * n


@pytest.mark.parametrize(("n", "d", "block_m", "block_n"), [(64, 16, 16, 16), (128, 16, 32, 64), (96, 32, 32, 32)])
def test_theorems_2_and_5_accesses_are_those_of_the_loops(n, d, block_m, block_n):
    columns, rows = n // block_n, n // block_m
    there, back = measure("paper", n, d, block_m, block_n)

    assert (there.loads["k_ptr"], there.loads["v_ptr"]) == (n * d, n * d)
    assert there.loads["q_ptr"] == there.loads["o_ptr"] == there.stores["o_ptr"] == n * d * columns
    assert there.accesses == 2 * n * d + (3 * n * d + 4 * n) * columns
    assert (back.loads["k_ptr"], back.stores["dk_ptr"], back.stores["dv_ptr"]) == (n * d, n * d, n * d)
    assert back.accesses == 4 * n * d + (5 * n * d + 2 * n) * columns

    there, back = measure("standard", n, d, block_m, block_n)
    # S and P are written and read once; Q, K and V are read by tiles, n d / block elements a row or column
    assert there.stores["s_ptr"] + there.loads["s_ptr"] + there.stores["p_ptr"] + there.loads["a_ptr"] == 4 * n * n
    assert there.accesses == 4 * n * n + n * d * (columns + 2 * rows + 1) + n
    # P twice, dP twice, dS three times
    square = sum(back.loads.get(x, 0) + back.stores.get(x, 0) for x in ("a_ptr", "p_ptr", "dp_ptr", "ds_ptr"))
    assert square == 7 * n * n
    assert back.accesses == 7 * n * n + n * d * (3 * columns + 2 * rows + 3)


def test_accesses_grow_with_the_square_of_the_length_or_with_the_length_where_memory_grows_too():
    d = 16
    for which in (0, 1):
        paper = [measure("paper", n, d, 16, 16)[which].accesses for n in (64, 128)]
        standard = [measure("standard", n, d, 32, 32)[which].accesses for n in (64, 128)]
        scaled = [measure("paper", n, d, 16, n // 4)[which].accesses for n in (64, 128)]
        for counted, factor in ((paper, 4), (standard, 4), (scaled, 2)):
            assert counted[1] / counted[0] == pytest.approx(factor, rel=0.1)


def test_larger_blocks_mean_fewer_accesses():
    """As in the figure of the paper, with N = 128 and a block of keys from 16 to 128."""
    n, d = 128, 16
    blocks = (16, 32, 64, 128)
    for which in (0, 1):
        counts = [measure("paper", n, d, 16, block)[which].accesses for block in blocks]

        assert sorted(counts, reverse=True) == counts
        products = [block * (c - (2 + 2 * which) * n * d) for block, c in zip(blocks, counts, strict=True)]
        assert max(products) == min(products), "beyond reading K and V once, accesses are inverse to the block"


def test_accesses_are_inverse_to_the_memory_and_below_the_standard_algorithm_where_d_squared_is_below_it():
    n, d = 128, 16
    standard = [x.accesses for x in measure("standard", n, d, 64, 64)]
    for memory in (1024, 2048):  # between d^2 and N d
        block_n = memory // (4 * d)
        block_m = min(block_n, d)
        paper = [x.accesses for x in measure("paper", n, d, block_m, block_n)]

        for which, constant in ((0, (12, 16)), (1, (20, 26))):
            assert constant[0] <= paper[which] * memory / (n * n * d * d) <= constant[1]
        assert paper[0] < standard[0]
        assert paper[1] < standard[1]


def pattern(n, block_m, block_n, live):
    """The first `live` blocks in the order of a shuffle that is always the same."""
    count = (n // block_m) * (n // block_n)
    chosen = torch.zeros(count, dtype=torch.bool)
    chosen[torch.randperm(count, generator=torch.Generator().manual_seed(0))[:live]] = True
    return LiveBlocks(live=chosen.view(1, 1, n // block_m, n // block_n), rows=block_m, keys=block_n)


def without_pattern(measured):
    return measured.accesses - measured.loads.get("live_ptr", 0)


@pytest.mark.parametrize(("n", "d", "block_m", "block_n"), [(64, 16, 16, 16), (128, 16, 32, 16)])
def test_proposition_4_accesses_and_operations_are_proportional_to_the_live_blocks(n, d, block_m, block_n):
    columns, rows = n // block_n, n // block_m
    dense = measure("paper", n, d, block_m, block_n)
    for share in (0, 1, 2, 3, 4):
        live = columns * rows * share // 4
        there, back = measure("paper", n, d, block_m, block_n, pattern(n, block_m, block_n, live))

        # K and V once, as Algorithm 5 loads them before it looks; then tiles of Q, O, m and l for live blocks alone
        assert without_pattern(there) == 2 * n * d + live * block_m * (3 * d + 4)
        assert without_pattern(back) == 4 * n * d + live * block_m * (5 * d + 2)
        assert [x.products for x in (there, back)] == [y * live * block_m * block_n * d for y in (2, 5)]
        assert there.loads.get("live_ptr") == back.loads.get("live_ptr") == columns * rows
    assert [without_pattern(x) for x in (there, back)] == [x.accesses for x in dense], "s = 1 is the dense count"


def test_proposition_4_the_constant_is_the_same_for_every_memory_and_share_and_the_inputs_remain_at_share_0():
    n, d = 128, 16
    for memory in (1024, 2048):
        block_n = memory // (4 * d)
        block_m = min(block_n, d)
        blocks = (n // block_m) * (n // block_n)
        for share in (0.125, 0.5, 1.0):
            found = measure("paper", n, d, block_m, block_n, pattern(n, block_m, block_n, int(blocks * share)))
            for counted, inputs, constant in zip(found, (2, 4), ((12, 13), (20, 21)), strict=True):
                beyond = without_pattern(counted) - inputs * n * d
                assert constant[0] <= beyond * memory / (n * n * d * d * share) <= constant[1]


def test_a_butterfly_has_n_log_n_live_blocks_but_the_pattern_is_looked_at_block_by_block():
    d, block = 16, 16
    for n in (64, 128):
        count = n // block
        apart = torch.arange(count)[:, None] ^ torch.arange(count)
        live = (apart & (apart - 1)) == 0
        there, _ = measure("paper", n, d, block, block, LiveBlocks(live=live[None, None], rows=block, keys=block))

        assert live.sum() == count * count.bit_length()  # the diagonal, and log2 of the blocks in every row
        assert without_pattern(there) == 2 * n * d + int(live.sum()) * block * (3 * d + 4)
        assert there.loads["live_ptr"] == count**2


def test_a_share_of_one_over_the_root_of_n_gives_n_root_n_accesses():
    d, block = 16, 16
    beyond, looks = [], []
    for n in (64, 256):
        live = round((n // block) ** 2 / n**0.5)
        there, _ = measure("paper", n, d, block, block, pattern(n, block, block, live))
        beyond.append(without_pattern(there) - 2 * n * d)
        looks.append(there.loads["live_ptr"])

    assert beyond[1] / beyond[0] == 4**1.5
    assert looks[1] / looks[0] == 4**2  # the pattern is looked at block by block


def test_a_tile_that_does_not_divide_the_block_is_refused():
    with pytest.raises(ValueError, match="block_m=32, block_n=32 must divide blocks of 16 x 32"):
        Setting(scale=1.0, blocks=LiveBlocks(live=torch.ones(1, 1, 2, 2, dtype=torch.bool), rows=16, keys=32))
