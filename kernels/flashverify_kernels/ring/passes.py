"""Forward and backward of ring attention on one rank."""

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple, get_args

import torch

from flashverify_kernels.launch import backward, forward
from flashverify_kernels.merge import merge
from flashverify_kernels.options import Causal, Options
from flashverify_kernels.results import BackwardResult
from flashverify_kernels.ring.exchange import Exchange
from flashverify_kernels.ring.sharding import Ring, band_of, count, lengths_within

_ACCEPTED = frozenset(
    ("scale", "causal", "window", "key_lengths", "softcap", "precision", "config", "allow_interpreted_bf16")
)


class RingForward(NamedTuple):
    """What a rank computes.

    Attributes:
        o: `[B, Hq, rows of the rank, Dv]` in the dtype of q.
        lse: `[B, Hq, rows of the rank]` fp32, natural; -inf for a row that sees no key.
    """

    o: torch.Tensor
    lse: torch.Tensor


class _Part(NamedTuple):
    """A launch: the number of a piece of rows, rows and keys of this step, and the options of their attention."""

    piece: int
    rows: slice
    keys: slice
    options: Options


def ring_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ring: Ring, options: Options | None = None
) -> RingForward:
    """Compute O and the natural LSE of this rank's rows over the keys of all ranks.

    Args:
        q: `[B, Hq, rows of the rank, D]`.
        k: `[B, Hkv, keys of the rank, D]`.
        v: `[B, Hkv, keys of the rank, Dv]`.
        ring: the whole sequence and the ranks.
        options: see `attention`; the mask is that of the whole sequence. Accepted are scale, causal, window, key_lengths, softcap,
            precision, config and allow_interpreted_bf16.

    Raises:
        TypeError: an argument of the wrong type or dtype.
        ValueError: a shape, device or value that is not accepted.
    """
    options = options or Options()
    _check(q, k, ring, options)
    o = torch.zeros(*q.shape[:3], v.shape[3], dtype=torch.float32, device=q.device)
    lse = torch.full(q.shape[:3], -math.inf, dtype=torch.float32, device=q.device)
    begun: set[int] = set()
    held = [k, v]
    for step in range(ring.ranks):
        owner = (ring.rank - step) % ring.ranks
        ahead = Exchange(ring, held, owner) if step < ring.ranks - 1 else None
        for part in _parts(ring, owner, options):
            k_part, v_part = (x[:, :, part.keys] for x in held)
            found = forward(q[:, :, part.rows], k_part, v_part, part.options, dtype=torch.float32)
            o_part, lse_part = found.o, found.lse_natural()
            if part.piece in begun:
                before = (o[:, :, part.rows], lse[:, :, part.rows])
                o_part, lse_part = merge(torch.stack([before[0], o_part]), torch.stack([before[1], lse_part]))
            o[:, :, part.rows], lse[:, :, part.rows] = o_part, lse_part
            begun.add(part.piece)
        if ahead is not None:
            held = ahead.wait()
    return RingForward(o.to(q.dtype), lse)


def ring_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    found: RingForward,
    ring: Ring,
    options: Options | None = None,
    *,
    dlse: torch.Tensor | None = None,
) -> BackwardResult:
    """Compute the gradients of this rank's q, k and v; those of k and v from the rows of all ranks.

    Args:
        do: gradient of `found.o`.
        q: as in `ring_forward`.
        k: as in `ring_forward`.
        v: as in `ring_forward`.
        found: what `ring_forward` returned on this rank.
        ring: as in `ring_forward`.
        options: as in `ring_forward`.
        dlse: gradient of `found.lse`, or None.

    Raises:
        TypeError: an argument of the wrong type or dtype.
        ValueError: a shape, device or value that is not accepted.
    """
    options = options or Options()
    _check(q, k, ring, options)
    dq, *gradients = (torch.zeros(x.shape, dtype=torch.float32, device=q.device) for x in (q, k, v))
    delta = torch.zeros(found.lse.shape, dtype=torch.float32, device=q.device)
    lse2 = found.lse * math.log2(math.e)
    held = [k, v]
    for step in range(ring.ranks):
        owner = (ring.rank - step) % ring.ranks
        ahead = Exchange(ring, held, owner) if step < ring.ranks - 1 else None
        for part in _parts(ring, owner, options):
            q_part, do_part, o_part = (x[:, :, part.rows] for x in (q, do, found.o))
            k_part, v_part = (x[:, :, part.keys] for x in held)
            got = backward(
                do_part,
                q_part,
                k_part,
                v_part,
                o_part,
                lse2[:, :, part.rows],
                part.options,
                dlse=None if dlse is None else dlse[:, :, part.rows],
                dtype=torch.float32,
            )
            assert got.dq is not None
            assert got.dk is not None
            assert got.dv is not None
            dq[:, :, part.rows] += got.dq
            gradients[0][:, :, part.keys] += got.dk
            gradients[1][:, :, part.keys] += got.dv
            delta[:, :, part.rows] = got.delta
        gradients = Exchange(ring, gradients, owner).wait()  # a last step brings them home
        if ahead is not None:
            held = ahead.wait()
    return BackwardResult(dq.to(q.dtype), gradients[0].to(k.dtype), gradients[1].to(v.dtype), delta)


def _parts(ring: Ring, owner: int, options: Options) -> Iterator[_Part]:
    """The launches over the keys of `owner`, the band of the whole sequence cut to each pair of pieces."""
    low, high = _band(ring, options)
    first_row = 0
    for piece, rows in enumerate(ring.rows_of(ring.rank)):
        first_key = 0
        for keys in ring.keys_of(owner):
            band = band_of(rows, keys, low, high)
            if band is not None:
                lengths = options.key_lengths
                yield _Part(
                    piece,
                    slice(first_row + band.rows, first_row + rows.size),
                    slice(first_key + band.keys, first_key + keys.size),
                    dataclasses.replace(
                        options,
                        causal=None,
                        window=None if band.window == (None, None) else band.window,
                        key_lengths=None if lengths is None else lengths_within(lengths, keys, band.keys),
                    ),
                )
            first_key += keys.size
        first_row += rows.size


def _band(ring: Ring, options: Options) -> tuple[int | None, int | None]:
    """The smallest and the largest distance from a row to a key that it sees."""
    shift = ring.keys - ring.queries if options.causal == "bottom-right" else 0
    left, right = options.window or (None, None)
    right = 0 if options.causal is not None else right
    return None if left is None else shift - left, None if right is None else shift + right


def _check(q: torch.Tensor, k: torch.Tensor, ring: Ring, options: Options) -> None:
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.name not in _ACCEPTED and (isinstance(value, torch.Tensor) or value != field.default):
            raise ValueError(
                f"{field.name}: not accepted by ring attention, which takes {', '.join(sorted(_ACCEPTED))}"
            )
    if options.causal not in (
        accepted := (None, *get_args(Causal))
    ):  # the launches of a part get a window in its place
        raise ValueError(f"causal: expected one of {', '.join(map(repr, accepted))}, got {options.causal!r}")
    if options.causal == "bottom-right" and options.key_lengths is not None:
        raise ValueError("causal: 'bottom-right' is not accepted with key_lengths, whose sequences end at other keys")
    for name, x, pieces in (("q", q, ring.rows_of(ring.rank)), ("k", k, ring.keys_of(ring.rank))):
        if x.dim() != 4 or x.shape[2] != count(pieces):
            raise ValueError(
                f"{name}: expected 4 axes and {count(pieces)} positions, those of rank {ring.rank}, got shape {tuple(x.shape)}"
            )
