"""Values that make a count readable in a rounded format: bins of keys or rows, signs, and powers of two around them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flashverify.case.values import philox
from flashverify.formats import FORMATS

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case

__all__ = ["WHOLE", "Scaling", "alternating", "bins", "signs", "widest_bin", "width_for"]

WHOLE = 0.25
"""A reading counts as an integer where it lies no further than this from one."""

_ROUNDINGS = {"keys": 3, "rows": 6}
"""Roundings to 16 bits between one weight and the output: P, a partial O and O; with dS, dO and the factor 1 - O V, at most 3/2, in gradients."""


def widest_bin(case: Case, axis: str) -> int:
    """Most keys (or rows) that may share a channel, so that all rounding errors together stay within `WHOLE`; a power of two.

    Args:
        case: names the format.
        axis: `keys` for what a row sums over, `rows` for what a key's gradient sums over.
    """
    u = FORMATS[case.dtype].u if case.precision != "tf32" else 2.0**-11
    return max(1, 1 << math.floor(math.log2(WHOLE / (_ROUNDINGS[axis] * u))))


def width_for(size: int, channels: int, launches: int, most: int) -> int:
    """Width of the bins, a power of two up to `most`, with which `size` positions take at most `launches` launches where that is possible."""
    need = max(1, math.ceil(size / max(1, channels * launches)))
    return min(most, 1 << math.ceil(math.log2(need)))


class Scaling:
    """Powers of two that keep every count a normal number of the case's format, for rows of up to `most` keys.

    Attributes:
        value: magnitude of V where O is read: O = value * count / n.
        row: dO of a row of n keys is n * row, rounded: each of its weights then contributes `row`.
    """

    def __init__(self, most: int) -> None:
        bits = math.ceil(math.log2(max(1, most)))
        self.value = 2.0 ** min(8, math.ceil(bits / 2))
        self.row = 2.0 ** -max(0, bits - 8)


def bins(size: int, width: int) -> int:
    """Bins of `width` positions that `size` positions fill."""
    return -(-size // width)


def alternating(case: Case, device: torch.device) -> torch.Tensor:
    """+1, -1, +1, ... along the keys, float64 `[B, Hkv, Sk]`: the mean over any two or more keys in a row is at most 1/3."""
    import torch

    code = 1.0 - 2.0 * (torch.arange(case.seq_k, device=device) % 2).double()
    return code.expand(case.batch, case.heads_kv, case.seq_k)


def signs(case: Case, name: str, device: torch.device, *, axis: str, shared: bool) -> torch.Tensor:
    """Random signs, float64 `[B, Hkv, Sk]` of the keys or `[B, Hq, Sq]` of the rows, the same on every machine.

    Args:
        case: the problem; its seed is that of the signs.
        name: of the stream.
        device: where they are to be.
        axis: `keys` or `rows`.
        shared: the same in every sequence and head.
    """
    import torch

    heads, size = (case.heads_kv, case.seq_k) if axis == "keys" else (case.heads_q, case.seq_q)
    own = (1, 1, size) if shared else (case.batch, heads, size)
    drawn = philox.signs(case.values.seed, f"xray/{name}/{axis}", own)
    return torch.from_numpy(drawn).to(device).expand(case.batch, heads, size)
