"""Which positions of a sequence a rank has, and which of its rows and keys see each other."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
import torch.distributed as dist

Sharding = Literal["contiguous", "striped", "zigzag"]
SHARDINGS: tuple[Sharding, ...] = get_args(Sharding)


class Piece(NamedTuple):
    """Positions `start`, `start + step`, ..., `size` of them."""

    start: int
    step: int
    size: int


class Band(NamedTuple):
    """The rows and keys of a pair of pieces that see each other.

    Attributes:
        rows: first row that sees a key; none before it does.
        keys: first key that a row sees.
        window: `(left, right)` around the diagonal that starts at these two; None is unbounded.
    """

    rows: int
    keys: int
    window: tuple[int | None, int | None]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Ring:
    """A sequence of `queries` rows and `keys` keys, spread over the ranks of `group`.

    Attributes:
        queries: rows of the whole sequence.
        keys: keys of the whole sequence.
        sharding: `contiguous`: rank r of n has the r-th n-th part. `striped`: positions r, r + n, r + 2n, ..., so that under a causal mask
            every rank has as much to do as every other. `zigzag`: the r-th part of 2n from the start and the r-th from the end, likewise.
        group: of `torch.distributed`; None is the default group.
    """

    queries: int
    keys: int
    sharding: Sharding = "striped"
    group: dist.ProcessGroup | None = None

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return dist.get_world_size(self.group)

    @property
    def rank(self) -> int:
        """This rank within the group."""
        return dist.get_rank(self.group)

    def rows_of(self, rank: int) -> list[Piece]:
        """The rows that a rank has."""
        return pieces_of(self.queries, self.ranks, rank, self.sharding)

    def keys_of(self, rank: int) -> list[Piece]:
        """The keys that a rank starts with."""
        return pieces_of(self.keys, self.ranks, rank, self.sharding)


def pieces_of(length: int, ranks: int, rank: int, sharding: Sharding) -> list[Piece]:
    """The positions out of `length` that a rank has, in the order of its tensors.

    Raises:
        ValueError: the sharding is unknown.
    """
    if sharding not in SHARDINGS:
        raise ValueError(f"sharding: expected one of {', '.join(map(repr, SHARDINGS))}, got {sharding!r}")
    if sharding == "striped":
        return [Piece(rank, ranks, max(-(-(length - rank) // ranks), 0))]
    parts, mine = (ranks, [rank]) if sharding == "contiguous" else (2 * ranks, [rank, 2 * ranks - 1 - rank])
    cuts = [length * n // parts for n in range(parts + 1)]
    return [Piece(cuts[n], 1, cuts[n + 1] - cuts[n]) for n in mine]


def count(pieces: list[Piece]) -> int:
    """Positions of all pieces together."""
    return sum(piece.size for piece in pieces)


def take(whole: torch.Tensor, pieces: list[Piece], dim: int) -> torch.Tensor:
    """A copy of the positions of `whole` along `dim` that the pieces name."""
    return torch.cat([_part(whole, piece, dim) for piece in pieces], dim).contiguous()


def put(whole: torch.Tensor, shard: torch.Tensor, pieces: list[Piece], dim: int) -> None:
    """Writes a shard to its positions in `whole`."""
    at = 0
    for piece in pieces:
        _part(whole, piece, dim).copy_(shard.narrow(dim, at, piece.size))
        at += piece.size


def _part(whole: torch.Tensor, piece: Piece, dim: int) -> torch.Tensor:
    index = [slice(None)] * whole.dim()
    index[dim] = slice(piece.start, piece.start + piece.step * piece.size, piece.step)
    return whole[tuple(index)]


def band_of(rows: Piece, keys: Piece, low: int | None, high: int | None) -> Band | None:
    """The band `low <= key - row <= high` of the whole sequence, between two pieces of the same step; None where nothing is seen.

    Args:
        rows: of the queries.
        keys: of the keys.
        low: smallest distance that is seen; None is unbounded.
        high: largest, likewise.
    """
    step, shift = rows.step, rows.start - keys.start
    right = None if high is None else (high + shift) // step
    left = None if low is None else -(-(low + shift) // step)
    first_row = first_key = 0
    if right is not None and right < 0:  # the first rows lie before every key
        first_row = -right
        left = None if left is None else left + first_row
        right = 0
    if left is not None and left > 0:  # the first keys lie before every row
        first_key = left
        right = None if right is None else right - first_key
        left = 0
    if first_row >= rows.size or first_key >= keys.size or (right is not None and right < 0):
        return None
    if right is not None and right >= keys.size - first_key - 1:
        right = None
    if left is not None and -left >= rows.size - first_row - 1:
        left = None
    return Band(first_row, first_key, (None if left is None else -left, right))


def lengths_within(lengths: torch.Tensor, keys: Piece, first: int) -> torch.Tensor:
    """How many keys of a piece, from its `first` on, lie within the declared `[B]` lengths of the whole sequence; int32."""
    within = (lengths - keys.start + keys.step - 1).div(keys.step, rounding_mode="floor")
    return (within - first).clamp(0, keys.size - first).to(torch.int32)
