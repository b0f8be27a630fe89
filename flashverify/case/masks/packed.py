"""Packed sequences."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from flashverify.case.codec import ints, ints_text
from flashverify.case.masks.part import Condition, Drawn, MaskPart, Role, Source
from flashverify.case.require import require
from flashverify.case.tensor_spec import TensorSpec
from flashverify.errors import UsageError

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case

__all__ = ["PACKED", "Packed"]

_MANY = 7
"""Sequences from which on a draw often has one long one among short ones."""
_SHORT = 5


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed sequences, one after the other in a row of tokens. Tokens behind the last one are no part of the problem.

    Args:
        cu_q: cumulative rows, from 0: sequence s has rows `cu_q[s]` to `cu_q[s + 1] - 1`.
        cu_k: cumulative keys, likewise; as many as `cu_q`.
    """

    cu_q: tuple[int, ...]
    cu_k: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, cu in (("cu_q", self.cu_q), ("cu_k", self.cu_k)):
            if not cu or cu[0] != 0 or any(b < a for a, b in pairwise(cu)):
                raise UsageError(f"packed {name}={cu} is not accepted: cumulative lengths start at 0 and never fall")
        if len(self.cu_q) != len(self.cu_k):
            raise UsageError(f"packed cu_q={self.cu_q} and cu_k={self.cu_k} must have the same length")

    def lengths(self) -> tuple[tuple[int, int], ...]:
        """(rows, keys) of each sequence."""
        rows, keys = pairwise(self.cu_q), pairwise(self.cu_k)
        return tuple((b - a, d - c) for (a, b), (c, d) in zip(rows, keys, strict=True))


class _Packed(MaskPart):
    """Several sequences in one row of tokens; a row sees its own sequence only."""

    name = word = "packed"
    role: Role = "extra"
    reason = "keys of another sequence"
    extent = True
    tensors = (
        TensorSpec(
            name="cu_q", axes=("limit",), dtype="int32", values=lambda case: case.mask.packed and case.mask.packed.cu_q
        ),
        TensorSpec(
            name="cu_k", axes=("limit",), dtype="int32", values=lambda case: case.mask.packed and case.mask.packed.cu_k
        ),
    )

    def check_case(self, value: Any, case: Case) -> None:
        """One row of tokens that holds all sequences."""
        require(case.batch == 1, "batch", case.batch, "1 with packed sequences, which lie in one row of tokens")
        require(value.cu_q[-1] <= case.seq_q, "packed cu_q", value.cu_q, f"at most seq_q={case.seq_q} rows")
        require(value.cu_k[-1] <= case.seq_k, "packed cu_k", value.cu_k, f"at most seq_k={case.seq_k} keys")
        page = case.storage.page_size
        require(page is None, "page_size", page, "None with packed sequences")

    def parse(self, text: str) -> Packed:
        """Cumulative rows, a slash, cumulative keys."""
        cu_q, cu_k = text.split("/")
        return Packed(ints(cu_q), ints(cu_k))

    def format(self, value: Any) -> str:
        """Cumulative rows, a slash, cumulative keys."""
        return f"{ints_text(value.cu_q)}/{ints_text(value.cu_k)}"

    def conditions(self, case: Case, device: torch.device | str) -> dict[str, Condition]:
        """Row and key of one sequence; in a dense problem that is the entry of the batch."""
        return {"sequence": lambda pairs: pairs.row_sequence == pairs.key_sequence}

    def draw(self, source: Source, drawn: Drawn) -> Packed:
        """Sequences in buffers of seq_q rows and seq_k keys: some of them empty, sometimes with room behind the last."""
        count, seq_q, seq_k = drawn.sequences, drawn.seq_q, drawn.seq_k
        cu_q = _cumulative(source, count, seq_q)
        if "causal" in drawn.parts and not drawn.supports.rectangular_causal:
            return Packed(cu_q, cu_q)
        if "tree" in drawn.parts:
            prefixes = _cumulative(source, count, seq_k - seq_q)
            return Packed(cu_q, tuple(a + b for a, b in zip(cu_q, prefixes, strict=True)))
        same = seq_q == seq_k and source.flag()
        return Packed(cu_q, cu_q if same else _cumulative(source, count, seq_k))


def _cumulative(source: Source, count: int, total: int) -> tuple[int, ...]:
    """Cumulative lengths of `count` sequences in `total` positions: even shares, anything, 1 or 0; of many often a long one among short ones."""
    rest = total - (source.size(1, total // 2) if total > 1 and source.one_in(3) else 0)
    if count >= _MANY and source.flag():
        return _uneven(source, count, rest)
    cu = [0]
    for left in range(count, 0, -1):
        kinds = (rest // left, rest // left, "size", "size", 1, 0) if left > 1 else (rest, rest, rest, 0)
        kind: int | str = source.choice(kinds)
        length = min(rest, kind) if isinstance(kind, int) else source.size(0, rest)
        cu.append(cu[-1] + length)
        rest -= length
    return tuple(cu)


def _uneven(source: Source, count: int, total: int) -> tuple[int, ...]:
    """A long sequence among short ones, whose lengths repeat."""
    most = max(min(_SHORT, total // (2 * count)), 1)
    short = source.integers(0, most, least=1, most=_SHORT)
    lengths = [short[n % len(short)] for n in range(count)]
    place = source.integer(0, count - 1)
    lengths[place] = max(total - sum(lengths) + lengths[place], 0)
    return tuple(min(end, total) for end in accumulate(lengths, initial=0))


PACKED = _Packed()
