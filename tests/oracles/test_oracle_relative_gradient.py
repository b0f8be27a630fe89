"""The gradient of a table of relative biases: against autograd, mpmath and dbias, in tiles, and where inputs are not finite."""

import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from flashverify_oracles import exact_attention
from tests.oracles.features import both, differences, draw, options_of, results
from tests.oracles.relative import BUCKETS, LAYOUTS, arguments, by_autograd, positions, table_of

INF, NAN = math.inf, math.nan
SIZES = [(1, 1, 1, 4, 4, 3, 3), (2, 4, 2, 4, 9, 5, 2), (2, 3, 1, 9, 5, 2, 4)]
SUBSETS: list[tuple[str, ...]] = [(), ("softcap",), ("sink",), ("dropout",), ("softcap", "sink", "dropout")]


def problem(
    layout: str, names: tuple[str, ...], sizes: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 1
) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any], Tensor, Tensor, Tensor]:
    """Tensors, options with the bias, what asks for the gradient of its table, the table, and the positions."""
    x, options = draw(seed, sizes, dtype), options_of(names, seed + 1, sizes)
    row, key, seen = positions(layout, sizes[0], *sizes[3:5])
    x["visible"] &= seen
    table = table_of(sizes[1], seed)
    bias, asked = arguments(table, row, key)
    options["biases"].append(bias)
    return x, options, asked, table, row, key


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("names", SUBSETS)
@pytest.mark.parametrize("sizes", SIZES)
def test_agrees_with_autograd_of_the_table(layout: str, names: tuple[str, ...], sizes: tuple[int, ...]) -> None:
    x, options, asked, table, row, key = problem(layout, names, sizes)

    got = results(*both(x, 0.7, options, **asked))

    for name, expected in by_autograd(x, 0.7, options, table, row, key).items():
        torch.testing.assert_close(got[name], expected, rtol=1e-12, atol=1e-12, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("names", SUBSETS)
@pytest.mark.parametrize("conditional", [False, True])
def test_float64_agrees_with_mpmath(layout: str, names: tuple[str, ...], conditional: bool) -> None:
    x, options, asked, *_ = problem(layout, names, (2, 4, 2, 4, 5, 3, 2), torch.float32)

    worst = differences(x, 0.7, options, conditional=conditional, **asked)

    # Logits up to about 10, sums of some thirty terms up to about 10: some 1e2 units of 2**-53.
    assert max(worst.values()) < 2e-13, worst


@pytest.mark.slow
def test_float64_agrees_with_mpmath_on_random_combinations() -> None:
    rng = random.Random(3)
    for case in range(25):
        names = tuple(name for name in ("softcap", "bias", "alibi", "sink", "dropout") if rng.random() < 0.5)
        layout, dtype = rng.choice(LAYOUTS), rng.choice([torch.float16, torch.bfloat16, torch.float32])
        sizes = rng.choice(SIZES)
        x, options, asked, *_ = problem(layout, names, sizes, dtype, case)
        scale, conditional = rng.choice([0.0, 0.3, -1.0, 8.0]), rng.random() < 0.5

        worst = differences(x, scale, options, bias_shape=(1, sizes[1], *sizes[3:5]), conditional=conditional, **asked)

        assert max(worst.values()) < 2e-12, (case, layout, names, worst)


@pytest.mark.parametrize("tile", [(1, 1), (3, 2), (4, 100), (100, 4)])
@pytest.mark.parametrize("row_sums", [1, 100, 1 << 22])
def test_tiles_give_what_one_block_gives(tile: tuple[int, int], row_sums: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, options, asked, *_ = problem("lengths", ("softcap", "dropout"), (2, 4, 2, 11, 13, 5, 3))
    whole = results(*both(x, 0.5, options, **asked))
    monkeypatch.setattr("flashverify_oracles._buckets._ROW_SUMS", row_sums)

    tiled = results(*both(x, 0.5, options, **asked, _tile=tile))

    for name in whole:
        torch.testing.assert_close(tiled[name], whole[name], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("shape", ["pairs", "batch", "heads", "full"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_buckets_are_any_integers_that_broadcast(shape: str, dtype: torch.dtype) -> None:
    B, Hq, Sq, Sk = 2, 4, 3, 6
    x, options = draw(5, (B, Hq, 2, Sq, Sk, 3, 3)), options_of(("bias",), 6, (B, Hq, 2, Sq, Sk, 3, 3))
    size = {"pairs": (Sq, Sk), "batch": (B, 1, Sq, Sk), "heads": (1, Hq, Sq, Sk), "full": (B, Hq, Sq, Sk)}[shape]
    buckets = torch.randint(5, size, generator=torch.Generator().manual_seed(1)).to(dtype)

    got = results(*both(x, 0.7, options, bias_shape=(B, Hq, Sq, Sk), relative_buckets=buckets, bucket_count=5))
    worst = differences(x, 0.7, options, relative_buckets=buckets, bucket_count=5)

    expected = [
        [(got["dbias"][:, h] * (buckets.expand(B, Hq, Sq, Sk)[:, h] == n)).sum() for n in range(5)] for h in range(Hq)
    ]
    torch.testing.assert_close(got["drelative_bias"], torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-14)
    assert worst["drelative_bias"] < 1e-13


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_bucket_that_no_visible_pair_reads_has_a_gradient_of_exactly_zero(layout: str) -> None:
    x, options, asked, *_ = problem(layout, ("softcap", "sink", "dropout"), (2, 4, 2, 4, 9, 3, 2), torch.float32)
    buckets = asked["relative_buckets"](slice(0, 4), slice(0, 9)).expand(2, 4, 4, 9)
    x["visible"] &= buckets != 5
    x["visible"][:, 1] &= buckets[:, 1] != 0

    got = both(x, 0.5, options, **asked)[1].drelative_bias
    exact = exact_attention(
        x["q"], x["k"], x["v"], x["do"], scale=0.5, visible=x["visible"], dlse=x["dlse"], **options, **asked
    ).drelative_bias

    assert got is not None
    assert exact is not None
    read = torch.tensor(
        [[bool((x["visible"][:, h] & (buckets[:, h] == n)).any()) for n in range(BUCKETS)] for h in range(4)]
    )
    assert read[:, [1, 3]].all()
    assert not read[:, 4:].any()
    assert not read[1, 0]
    assert torch.equal(got != 0, read)
    assert [[number != 0 for number in line] for line in exact.tolist()] == read.tolist()


def test_one_bucket_for_all_pairs_gathers_what_the_log_sum_exp_passes_on() -> None:
    # A constant added to every logit leaves the weights alone and adds itself to the log-sum-exp.
    x = draw(7, (2, 2, 1, 4, 5, 3, 3))
    asked = {"relative_buckets": torch.zeros(4, 5, dtype=torch.int32), "bucket_count": 1}

    got = both(x, 0.5, {}, **asked)[1].drelative_bias

    assert got is not None
    passed = (x["dlse"] * x["visible"].any(-1)).sum((0, 2))[:, None]
    torch.testing.assert_close(got, passed, rtol=0, atol=1e-14)
    exact = exact_attention(x["q"], x["k"], x["v"], x["do"], scale=0.5, visible=x["visible"], **asked).drelative_bias
    assert exact is not None
    assert exact.ravel().tolist() == [0, 0]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("poison", [NAN, INF, pytest.param(-INF, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", ["q", "k", "v", "do", "dlse", "sink", "table", "unread entry", "dropped v"])
@pytest.mark.parametrize("given", [(), ("given_o",), ("given_lse",), ("given_o", "given_lse")])
def test_both_oracles_say_nan_of_the_same_elements(poison: float, name: str, given: tuple[str, ...]) -> None:
    sizes = (1, 2, 1, 4, 5, 3, 3)
    x, options, asked, table, *_ = problem("bottom-right", ("softcap", "sink", "dropout"), sizes, torch.float32)
    buckets = asked["relative_buckets"](slice(0, 4), slice(0, 5))
    x["visible"][:] = buckets != 5
    x["visible"][..., 0, 3:] = False
    options["keep"][..., 1, 2] = True
    more = {"given_o": torch.ones_like(x["do"]), "given_lse": torch.full_like(x["dlse"], 2.0)}
    if name == "table":
        table[1, 2] = poison
    elif name == "unread entry":
        table[:, 4:] = poison
    elif name == "sink":
        options["sink"][1] = poison
    elif name == "dropped v":
        options["keep"][..., 3] = False
        x["v"][0, 0, 3, 1] = poison
    elif name in ("k", "v"):
        x[name][0, 0, 2, 1] = poison
    else:
        x[name][0, 0, 1] = poison

    worst = differences(x, 0.5, options, **asked, **{key: more[key] for key in given})

    assert max(worst.values()) < 1e-12, worst


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("name", ["do", "q", "dlse"])
def test_both_oracles_agree_on_a_given_log_sum_exp_that_is_no_number(value: float, name: str) -> None:
    x, options, asked, *_ = problem("top-left", ("sink", "dropout"), (1, 2, 1, 4, 5, 3, 3), torch.float32)
    x["visible"][:, :, 1], given_lse = True, torch.full_like(x["dlse"], 2.0)
    x[name][0, 0, 1], given_lse[0, 0, 1] = NAN, value

    worst = differences(x, 0.5, options, given_lse=given_lse, **asked)

    assert max(worst.values()) < 1e-12, worst
    if value == -INF:  # the row has no weight, so its gradients are 0 and not NaN
        got = both(x, 0.5, options, given_lse=given_lse, **asked)[1].drelative_bias
        assert got is not None
        assert bool(got.isfinite().all())


def test_a_row_reaches_the_buckets_that_it_reads_in_its_own_head() -> None:
    # Row 1 of head 0 sees keys 0 and 1, of the buckets 1 and 2; bucket 0 is read by its invisible pair and by other rows.
    buckets = torch.tensor([[0, 3, 0], [1, 2, 0], [0, 0, 3]])
    x = draw(8, (1, 2, 1, 3, 3, 3, 3))
    x["visible"][:] = torch.tensor([[True, True, True], [True, True, False], [True, True, True]])
    x["do"][0, 0, 1, 2] = NAN

    got = both(x, 0.5, {}, relative_buckets=buckets, bucket_count=5)[1].drelative_bias

    assert got is not None
    assert got.isnan().tolist() == [[False, True, True, False, False], [False] * 5]
    assert got[:, 4].tolist() == [0.0, 0.0]


def test_no_size_needs_to_be_positive() -> None:
    for sizes in [(0, 2, 1, 3, 3, 4, 4), (1, 0, 0, 3, 3, 4, 4), (1, 0, 2, 3, 3, 4, 4), (1, 2, 1, 0, 3, 4, 4), (1, 2, 1, 3, 0, 4, 4), (1, 2, 1, 3, 3, 0, 0)]:  # fmt: skip
        x, options, asked, *_ = problem("bottom-right", ("sink",), sizes)

        got = both(x, 0.5, options, **asked)[1].drelative_bias

        assert got is not None
        assert got.shape == (sizes[1], BUCKETS)
        assert not got.isnan().any()
        assert max(differences(x, 0.5, options, **asked).values()) < 1e-14


def test_memory_of_the_bias_and_of_its_gradient_is_that_of_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flashverify_oracles._inputs._TILE_SCORES", 1 << 12)
    x, options, asked, *_ = problem("bottom-right", (), (1, 1, 1, 300, 400, 2, 2))
    whole, largest = asked["relative_buckets"], 0

    def buckets(rows: slice, keys: slice) -> Tensor:
        nonlocal largest
        largest = max(largest, (rows.stop - rows.start) * (keys.stop - keys.start))
        tile: Tensor = whole(rows, keys)
        return tile

    both(x, 0.5, options, relative_buckets=buckets, bucket_count=BUCKETS)

    assert 0 < largest <= 1 << 12
