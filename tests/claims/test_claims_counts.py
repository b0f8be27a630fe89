"""Counts: operations and accesses to memory, of the project's kernels, beside what the documents say of them."""

import ast
import inspect
import math
from pathlib import Path

import pytest
import torch

from flashverify.interpreter import count
from flashverify.subjects.examples import document_kernels
from flashverify_kernels import Configs, LaunchConfig, Options
from flashverify_kernels.algorithms import Setting, paper_forward, standard_forward
from flashverify_kernels.launch import forward

CLAIMS = Path(__file__).parents[2] / "docs" / "claims.md"


def dots(kernel):
    tree = ast.parse(inspect.getsource(kernel.fn))
    return sum(isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.dot" for node in ast.walk(tree))


def test_the_two_kernel_backward_does_14_n2_d_operations_not_12():
    dq, dkdv = dots(document_kernels.bwd_dq_kernel), dots(document_kernels.bwd_dk_dv_kernel)

    assert (dq, dkdv) == (3, 4)  # Q K^T and dO V^T are in both: each product is 2 N^2 d
    assert 2 * (dq + dkdv) == 14
    assert 2 * (dq + dkdv - 2) == 10  # one kernel does neither twice


def statements():
    """The lines of the Python blocks of docs/claims.md."""
    blocks = CLAIMS.read_text(encoding="utf-8").split("```python\n")[1:]
    return [line for block in blocks for line in block.split("```")[0].splitlines() if line.strip()]


@pytest.mark.parametrize("statement", statements())
def test_the_arithmetic_of_the_document_is_true(statement):
    assert eval(statement.partition("  #")[0], {"ceil": math.ceil, "log": math.log, "round": round}) is True


def test_the_document_has_statements():
    assert len(statements()) > 20


def inputs(n, d):
    return (torch.randn(1, 1, n, d, generator=torch.Generator().manual_seed(seed)) for seed in range(3))


def counted(launch):
    """(elements loaded and stored, multiply-adds, elements loaded of K and V)."""
    with count() as launches:
        launch()
    traffic = [(name, x) for found in launches for name, x in found.traffic.items()]
    moved = sum(x.loads + x.stores for _, x in traffic)
    keys = sum(x.loads for name, x in traffic if name.partition("_")[0] in ("k", "v"))
    return moved, sum(found.multiply_adds for found in launches), keys


def bundled(n, d, block_m, block_n, **options):
    config = LaunchConfig(block_m=block_m, block_n=block_n)
    return counted(lambda: forward(*inputs(n, d), Options(config=Configs(forward=config), **options)))


def test_a_tile_of_queries_does_32_operations_a_byte_not_32_75():
    _, products, keys = bundled(32, 128, 32, 32)

    assert 2 * products / (2 * keys) == 32  # two operations a multiply-add, two bytes an element


@pytest.mark.parametrize(("block_m", "block_n"), [(16, 16), (16, 32), (32, 16), (64, 32)])
def test_the_causal_skip_leaves_out_every_tile_without_a_visible_pair_and_no_other(block_m, block_n):
    n, d = 128, 16
    tiles = [(i, j) for i in range(n // block_m) for j in range(n // block_n) if (i + 1) * block_m > j * block_n]

    _, products, _ = bundled(n, d, block_m, block_n, causal="top-left")

    assert products == 2 * len(tiles) * block_m * block_n * d


def accesses(n, d, block_m, block_n):
    """Elements that the paper's algorithm moves: K and V once; Q, O twice and the statistics once a block of keys."""
    rows = sum(min(block_m, n - i) for i in range(0, n, block_m))
    return 2 * n * d + math.ceil(n / block_n) * rows * (3 * d + 4)


def blocks(d, m, rounding):
    """(queries, keys) of a block for a fast memory of `m` elements."""
    keys = rounding(m / (4 * d))
    return min(keys, d), keys


@pytest.mark.parametrize(("n", "d", "block_m", "block_n"), [(64, 16, 16, 16), (128, 16, 16, 32), (96, 32, 32, 32)])
def test_the_model_of_accesses_is_what_the_kernel_does(n, d, block_m, block_n):
    setting = Setting(scale=0.25, block_m=block_m, block_n=block_n)

    assert accesses(n, d, block_m, block_n) == counted(lambda: paper_forward(*inputs(n, d), setting))[0]


@pytest.mark.parametrize("m", [16 * 64, 16 * 128])
def test_accesses_are_proportional_to_n2_d2_over_m(m):
    d = 16
    for n in (64, 128):
        block_m, block_n = blocks(d, m, math.ceil)
        setting = Setting(scale=0.25, block_m=block_m, block_n=block_n)
        moved = counted(lambda: paper_forward(*inputs(n, d), setting))[0]  # noqa: B023
        assert 2.5 < moved / (n * n * d * d / m) < 20


def test_the_model_is_proportional_to_n2_d2_over_m_from_d_to_the_whole_of_k():
    for n in (1 << 10, 1 << 12):
        for d in (32, 64, 128):
            for m in (d, 8 * d, d * d, 4 * d * d, n * d):
                ratio = accesses(n, d, *blocks(d, m, math.ceil)) / (n * n * d * d / m)
                assert 2.5 < ratio < 20, (n, d, m, ratio)


def compared(n, d, m):
    """Accesses of the paper's forward and of the standard one with tiles that hold everything, as counted."""
    block_m, block_n = blocks(d, m, math.floor)
    paper = counted(lambda: paper_forward(*inputs(n, d), Setting(scale=0.25, block_m=block_m, block_n=block_n)))
    standard = counted(lambda: standard_forward(*inputs(n, d), Setting(scale=0.25, block_m=n, block_n=n)))
    return paper[0], standard[0]


def standard_accesses(n, d):
    """Elements that the standard algorithm moves at the least: Q, K, V and O once, S and P written and read, and the LSE."""
    return 4 * n * n + 4 * n * d + n


@pytest.mark.parametrize("n", [64, 128])
def test_the_model_of_the_standard_algorithm_is_what_it_does(n):
    assert compared(n, 16, 1024)[1] == standard_accesses(n, 16)


def test_half_the_accesses_of_the_standard_algorithm_or_fewer_where_d2_is_an_eighth_of_m():
    paper, standard = compared(128, 16, 2048)

    assert paper < standard / 2


def test_as_many_accesses_as_the_standard_algorithm_where_d2_is_a_third_of_m():
    n, d, m = 128, 21, 4 * 21 * 16  # blocks of 16 keys
    assert m / d**2 == pytest.approx(3, rel=0.02)
    paper, standard = compared(n, d, m)

    assert paper / standard == pytest.approx(1, rel=0.05)


def test_twice_the_accesses_of_the_standard_algorithm_where_d2_is_m():
    paper, standard = compared(128, 64, 64**2)

    assert paper > 2 * standard  # three times in the limit


def test_accesses_at_the_sizes_that_the_paper_calls_typical():
    def times_fewer(d, m):
        return standard_accesses(4096, d) / accesses(4096, d, *blocks(d, m, math.ceil))

    half = 50_000  # elements of two bytes in about 100 KB
    assert round(accesses(4096, 128, *blocks(128, half, math.ceil)) / 1e6, 1) == 67.8
    assert round(standard_accesses(4096, 128) / 1e6, 1) == 69.2
    assert times_fewer(128, half) == pytest.approx(1.02, abs=0.01)
    assert times_fewer(100, half) == pytest.approx(1.64, abs=0.01)  # the introduction's d
    assert times_fewer(64, half) == pytest.approx(3.9, abs=0.1)
    assert times_fewer(128, half // 2) < 0.6  # fp32: more accesses, not fewer
    assert times_fewer(64, half // 2) == pytest.approx(2, abs=0.1)
