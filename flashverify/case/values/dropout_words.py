"""Which 32-bit word decides whether dropout keeps a pair, in plain integers: probabilities are drawn on the edge of one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashverify.case.case import Case

__all__ = ["deciding_word", "dropout_key", "philox4x32"]

_GOLDEN = 0x9E3779B97F4A7C15
"""Odd, near 2^64 / 1.618: neighbouring seeds of cases give keys of dropout that differ in both halves."""
_MASK = 2**32 - 1


def dropout_key(seed: int) -> tuple[int, int]:
    """Seed (64 bits) and offset (32 bits) of dropout, from the seed of the values."""
    return seed * _GOLDEN % 2**64, (seed * _GOLDEN >> 16) % 2**32


def deciding_word(case: Case, sequence: int, head: int, row: int, key: int) -> int:
    """The word of a pair, which is kept where floor(p * 2^32) does not exceed it.

    Args:
        case: gives the seed and the number of heads.
        sequence: number of the sequence, packed or of the batch.
        head: query head.
        row: within the sequence.
        key: within the sequence.
    """
    seed, offset = dropout_key(case.values.seed)
    counter = (key // 4, row, sequence * case.heads_q + head, offset)
    return philox4x32(counter, (seed & _MASK, seed >> 32))[key % 4]


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 of Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011)."""
    (a, b, c, d), (left, right) = counter, key
    for _ in range(10):
        first, second = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (second >> 32) ^ b ^ left, second & _MASK, (first >> 32) ^ d ^ right, first & _MASK
        left, right = (left + 0x9E3779B9) & _MASK, (right + 0xBB67AE85) & _MASK
    return a, b, c, d
