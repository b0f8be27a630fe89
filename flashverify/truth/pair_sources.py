"""What the oracles compute pair by pair: kept pairs of dropout, ALiBi, relative biases and their buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from flashverify.truth.inputs import Pairs

__all__ = ["buckets_of", "distances", "kept_pairs", "random_words", "table_biases"]


def kept_pairs(
    *, seed: int, offset: int, p: float, heads: int, sequence: torch.Tensor, row: torch.Tensor, key: torch.Tensor
) -> Pairs:
    """The pairs that dropout keeps, for `Inputs.keep`; `sequence` and `row` are `[B, Sq]`, `key` is `[B, Sk]`, int64."""
    import flashverify_oracles as oracles

    def keep(rows: slice, keys: slice) -> torch.Tensor:
        return oracles.dropout_keep(
            seed=seed, offset=offset, p=p, heads=heads, sequence=sequence[:, rows], row=row[:, rows], key=key[:, keys]
        )

    return keep


def random_words(
    *, seed: int, offset: int, heads: int, sequence: torch.Tensor, row: torch.Tensor, key: torch.Tensor
) -> torch.Tensor:
    """The words of which dropout decides, int64 `[B, heads, Sq, Sk]`; arguments as in `kept_pairs`."""
    import flashverify_oracles as oracles

    return oracles.dropout_words(seed=seed, offset=offset, heads=heads, sequence=sequence, row=row, key=key)


def distances(slopes: torch.Tensor, row: torch.Tensor, key: torch.Tensor) -> Pairs:
    """ALiBi for `Inputs.biases`; `slopes` is `[Hq]`, `row` `[B, Sq]` and `key` `[B, Sk]` are positions, int64."""
    import flashverify_oracles as oracles

    return lambda rows, keys: oracles.alibi(slopes, row[:, rows], key[:, keys])


def table_biases(table: torch.Tensor, distance_buckets: torch.Tensor, row: torch.Tensor, key: torch.Tensor) -> Pairs:
    """A relative bias for `Inputs.biases`; `table` is `[Hq, buckets]`, `distance_buckets` `[2 * reach + 1]`, positions as in `distances`."""
    import flashverify_oracles as oracles

    return lambda rows, keys: oracles.relative_bias(table, distance_buckets, row[:, rows], key[:, keys])


def buckets_of(distance_buckets: torch.Tensor, row: torch.Tensor, key: torch.Tensor) -> Pairs:
    """The bucket of each pair, for `Inputs.relative_buckets`; arguments as in `table_biases`."""
    import flashverify_oracles as oracles

    return lambda rows, keys: oracles.relative_buckets(distance_buckets, row[:, rows], key[:, keys])
