"""The dropout mask and the linear bias: published vectors, definitions written out pair by pair, and arguments."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from flashverify_oracles import alibi, dropout_keep, forward
from flashverify_oracles._checks import all_finite, finite
from flashverify_oracles.dropout import philox4x32

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        # Known answers of philox4x32-10 that are distributed with Random123 (kat_vectors).
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES, ONES, ONES, ONES), (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers_of_philox(
    counter: tuple[int, int, int, int], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    c0, c1, c2, c3 = (torch.tensor(word) for word in counter)

    assert tuple(int(word) for word in philox4x32((c0, c1, c2, c3), key)) == expected


def philox_of_integers(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 with Python's integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & ONES, (a >> 32) ^ c[3] ^ k[1], a & ONES]
        k = [(k[0] + 0x9E3779B9) & ONES, (k[1] + 0xBB67AE85) & ONES]
    return c


def positions(*rows: list[int]) -> Tensor:
    return torch.tensor(rows, dtype=torch.int64)


@pytest.mark.parametrize("p", [0.0, 2.0**-33, 0.1, 0.5, 1 - 2.0**-32, math.nextafter(1.0, 0.0)])
@pytest.mark.parametrize(("seed", "offset"), [(0, 0), (1, 2), ((1 << 64) - 1, ONES)])
def test_every_pair_has_its_word(p: float, seed: int, offset: int) -> None:
    sequence, row = positions([0, 0, 3], [1, 1, 1]), positions([0, 7, 2], [5, ONES, 1])
    key = positions([0, 1, 2, 3, 4, 9, 6], [3, 2**34 - 1, 0, 8, 11, 5, 5])
    heads = 3

    keep = dropout_keep(seed=seed, offset=offset, p=p, heads=heads, sequence=sequence, row=row, key=key)

    assert (keep.shape, keep.dtype) == ((2, 3, 3, 7), torch.bool)
    for b, h, i, j in torch.cartesian_prod(*(torch.arange(n) for n in keep.shape)).tolist():
        at = int(key[b, j])
        counter = [at // 4, int(row[b, i]), int(sequence[b, i]) * heads + h, offset]
        word = philox_of_integers(counter, [seed & ONES, seed >> 32])[at % 4]
        assert bool(keep[b, h, i, j]) == (word >= math.floor(p * 2**32))


def test_a_tile_is_a_part_of_the_whole() -> None:
    row, key = torch.arange(12)[None], torch.arange(10)[None]
    options: dict[str, Any] = {"seed": 5, "offset": 1, "p": 0.4, "heads": 2}
    zero = torch.zeros(1, 12, dtype=torch.int64)
    whole = dropout_keep(**options, sequence=zero, row=row, key=key)

    tile = dropout_keep(**options, sequence=zero[:, 3:8], row=row[:, 3:8], key=key[:, 2:7])

    assert torch.equal(tile, whole[:, :, 3:8, 2:7])


def test_the_share_of_kept_pairs_is_that_of_p() -> None:
    row = torch.arange(512)[None]

    keep = dropout_keep(seed=7, offset=0, p=0.25, heads=1, sequence=torch.zeros_like(row), row=row, key=row)

    # 2**18 pairs: the standard deviation of the share is 8.5e-4.
    assert abs(float(keep.double().mean()) - 0.75) < 5e-3


@pytest.mark.parametrize(("rows", "keys"), [(0, 4), (4, 0)])
def test_there_may_be_no_pair(rows: int, keys: int) -> None:
    row, key = torch.zeros(2, rows, dtype=torch.int64), torch.zeros(2, keys, dtype=torch.int64)

    keep = dropout_keep(seed=7, offset=0, p=0.5, heads=3, sequence=row, row=row, key=key)

    assert keep.shape == (2, 3, rows, keys)


def test_the_mask_of_dropout_is_asked_tile_by_tile() -> None:
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 9, 4, generator=g) for _ in range(3))

    def keep(rows: slice, keys: slice) -> Tensor:
        row, key = (torch.arange(s.start, s.stop).expand(2, -1) for s in (rows, keys))
        sequence = torch.arange(2)[:, None].expand_as(row)
        return dropout_keep(seed=1, offset=0, p=0.3, heads=2, sequence=sequence, row=row, key=key)

    tiled = forward(q, k, v, scale=0.5, keep=keep, dropout=0.3, _tile=(4, 3))

    p = torch.softmax(0.5 * q.double() @ k.double().mT, -1) * keep(slice(0, 9), slice(0, 9)) / 0.7
    torch.testing.assert_close(tiled.o, p @ v.double(), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"seed": 1 << 64}, ValueError, "seed must be in"),
        ({"offset": -1}, ValueError, r"offset must be in \[0, 4294967296\), got -1"),
        ({"p": 1.0}, ValueError, r"p must be in \[0, 1\), got 1.0"),
        ({"row": torch.zeros(1, 2)}, TypeError, "row must be an int64 tensor, got torch.float32"),
        ({"key": [0]}, TypeError, "key must be an int64 tensor, got list"),
    ],
)
def test_bad_arguments_of_dropout_are_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    row = torch.zeros(1, 2, dtype=torch.int64)
    arguments: dict[str, Any] = {"seed": 0, "offset": 0, "p": 0.5, "heads": 1, "sequence": row, "row": row, "key": row}

    with pytest.raises(error, match=message):
        dropout_keep(**(arguments | change))


def test_alibi_is_the_slope_times_the_distance() -> None:
    slopes = torch.tensor([0.5, 0.1])
    row, key = positions([0, 4], [2, 2**29 - 1]), positions([0, 1, 6], [3, 0, 2])

    bias = alibi(slopes, row, key)

    assert (bias.shape, bias.dtype) == ((2, 2, 2, 3), torch.float64)
    for b, h, i, j in torch.cartesian_prod(*(torch.arange(n) for n in bias.shape)).tolist():
        # An fp32 slope has 24 bits, and the distance 29: their product is exact.
        assert float(bias[b, h, i, j]) == -float(slopes[h]) * abs(int(row[b, i]) - int(key[b, j]))


def test_bad_arguments_of_alibi_are_named() -> None:
    row = torch.zeros(1, 2, dtype=torch.int32)

    with pytest.raises(TypeError, match=r"slopes must be a floating tensor, got torch.int64"):
        alibi(torch.tensor([1]), row, row)
    with pytest.raises(TypeError, match=r"key must be an integer tensor, got torch.float32"):
        alibi(torch.ones(1), row, row.float())


def test_several_tensors_are_set_aside_with_one_wait_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.ones(2, 3), torch.tensor([1.0, math.nan, math.inf]), torch.full((2,), 1e308, dtype=torch.float64)]
    alone = [finite(x) for x in tensors]
    waits: list[int] = []
    tolist = torch.Tensor.tolist

    def waiting(self: torch.Tensor) -> object:
        waits.append(1)
        return tolist(self)

    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(torch.Tensor, "tolist", waiting)
    together = all_finite(*tensors)
    monkeypatch.undo()

    assert waits == [1]
    for (x, bad), (expected, expected_bad) in zip(together, alone, strict=True):
        assert torch.equal(x, expected)
        assert (bad is None) == (expected_bad is None)
        assert bad is None or torch.equal(bad, expected_bad)
    assert sorted(set(together[1][0].tolist())) == [0.0, 1.0]
    assert together[0][1] is None
