"""Which pairs dropout keeps: Philox4x32-10 of Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011)."""

from __future__ import annotations

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def dropout_keep(*, seed: int, offset: int, p: float, heads: int, sequence: Tensor, row: Tensor, key: Tensor) -> Tensor:
    """The pairs that dropout with probability `p` keeps.

    A pair is kept if its word is at least `floor(p * 2**32)`.

    Args:
        seed: as `dropout_words` takes it.
        offset: likewise.
        p: in [0, 1).
        heads: as `dropout_words` takes it.
        sequence: likewise.
        row: likewise.
        key: likewise.

    Returns:
        Bool `[B, heads, rows, keys]`.

    Raises:
        TypeError: a position is not an int64 tensor.
        ValueError: a number is out of its range.
    """
    if not 0 <= p < 1:
        raise ValueError(f"p must be in [0, 1), got {p!r}")
    words = dropout_words(seed=seed, offset=offset, heads=heads, sequence=sequence, row=row, key=key)
    return words >= int(p * 2**32)


def dropout_words(*, seed: int, offset: int, heads: int, sequence: Tensor, row: Tensor, key: Tensor) -> Tensor:
    """The random word of each pair, of which dropout decides.

    That of pair (i, j) of head h in sequence b is word `j mod 4` of Philox4x32-10 for the counter `(j // 4, i, b * heads + h, offset)`
    and the key `(seed mod 2**32, seed // 2**32)`.

    Args:
        seed: in [0, 2**64).
        offset: in [0, 2**32).
        heads: number of query heads.
        sequence: `[B, rows]` int64, number of the sequence of each row.
        row: `[B, rows]` int64, number of the row within its sequence, in [0, 2**32).
        key: `[B, keys]` int64, number of the key within its sequence, in [0, 2**34).

    Returns:
        int64 `[B, heads, rows, keys]`, in [0, 2**32).

    Raises:
        TypeError: a position is not an int64 tensor.
        ValueError: a number is out of its range.
    """
    for name, x in (("sequence", sequence), ("row", row), ("key", key)):
        if not isinstance(x, Tensor) or x.dtype != torch.int64:
            raise TypeError(f"{name} must be an int64 tensor, got {getattr(x, 'dtype', type(x).__name__)}")
    for name, number, limit in (("seed", seed, 1 << 64), ("offset", offset, 1 << 32)):
        if not 0 <= number < limit:
            raise ValueError(f"{name} must be in [0, {limit}), got {number!r}")
    # Four neighbouring keys share a counter: one evaluation for every four words.
    blocks, place = torch.unique(key // 4, return_inverse=True)  # [U], [B, keys]
    head = torch.arange(heads, device=row.device)
    stream = sequence[:, None, :] * heads + head[:, None]  # [B, heads, rows]
    counter = (
        blocks,
        row[:, None, :, None] & _WORD,
        stream[..., None] & _WORD,
        torch.full((), offset, dtype=torch.int64, device=row.device),
    )
    words = torch.stack(philox4x32(counter, (seed & _WORD, seed >> 32)), -1).flatten(-2)  # [B, heads, rows, 4 * U]
    column = (4 * place + key % 4)[:, None, None, :].expand(*words.shape[:3], key.shape[-1])
    return words.gather(-1, column)


def philox4x32(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four output words of Philox4x32-10, each an int64 tensor of the counters' broadcast shape with values in [0, 2**32).

    Args:
        counter: four words, int64 tensors with values in [0, 2**32), that broadcast together.
        key: two words.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        high0, low0 = _multiply(_MULTIPLIERS[0], c0)
        high1, low1 = _multiply(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3  # every word has mixed with every other, so all have the common shape


def _multiply(multiplier: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """High and low word of the 64-bit product; halves of `x` keep every step below 2**49."""
    low, high = multiplier * (x & 0xFFFF), multiplier * (x >> 16)
    middle = high + (low >> 16)
    return middle >> 16, ((middle & 0xFFFF) << 16) | (low & 0xFFFF)
