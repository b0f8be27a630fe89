"""The masks of dQ and dK, through dS = P (dP - delta).

V is a code of signs and dO the same in every row, so that dS of a pair is V_j - O_i times known factors; with K one-hot over keys dQ
shows it pair by pair, with Q one-hot over rows dK does. Times V_j it is 1 - O_i V_j, which is positive: no two pairs cancel. O_i is the
subject's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.xray.codes import bins
from flashverify.xray.reading import cells
from flashverify.xray.view import View, compare, filled

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from flashverify.xray.reading import Reader

__all__ = ["code_launch", "read_gradients"]

_BALANCED = 0.5
"""Largest mean of a code over a row for which its pairs, of weight 1 - O V, can be told in a bin."""


def read_gradients(reader: Reader, rows: int, keys: int, codes: Sequence[torch.Tensor]) -> list[View]:
    """The masks of dQ and of dK.

    Args:
        reader: what launches.
        rows: rows per cell of dK's mask.
        keys: keys per cell of dQ's mask.
        codes: signs of the keys `[B, Hkv, Sk]`; one after the other is tried while pairs are left that none has told.
    """
    found = []
    for read, width in ((_read_dq, keys), (_read_dk, rows)):
        view = read(reader, width, codes[0])
        for code in codes[1:] if width == 1 else ():
            if not _pending(reader, view):
                break
            view = filled(view, read(reader, width, code))
        found.append(view)
    return found


def _pending(reader: Reader, view: View) -> bool:
    """Whether a pair that carries a gradient is still unread; a row of a single key carries none."""
    several = (reader.probe.declared.per_row > 1).unsqueeze(-1)
    inside = ~reader.outside_rows if view.output == "dq" else ~reader.outside_keys
    return bool((view.unread & (view.declared > 0) & several & inside).any())


def code_launch(
    reader: Reader, code: torch.Tensor, *, q: torch.Tensor | None = None, k: torch.Tensor | None = None
) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    """One pass with V and dO in channel 0: the gradients, the code's mean over each row by the subject's O, and rho."""
    first = cells(reader.key * 0, reader.case.dim_v)
    problem, forward = reader.probe.forward(q=q, k=k, v=first * code.unsqueeze(-1), graded=True)
    _, size, rho = reader.incoming(forward)
    do = cells(reader.row * 0, reader.case.dim_v) * size.unsqueeze(-1)
    return reader.probe.backward(problem, forward, do), reader.probe.output(forward)[..., 0], rho


def _read_dq(reader: Reader, keys: int, code: torch.Tensor) -> View:
    import torch

    case, declared, channels = reader.case, reader.probe.declared, reader.case.dim_qk
    size = bins(case.seq_k, keys)
    read = torch.zeros(*case.shape_q[:3], size, dtype=torch.float64, device=reader.probe.device)
    unit = reader.scaling.row * reader.probe.scale * reader.amplitude
    mean = rho = torch.zeros(case.shape_q[:3], dtype=torch.float64, device=reader.probe.device)
    for start in range(0, size, channels):
        k = cells(reader.key // keys - start, channels) * code.unsqueeze(-1) * reader.amplitude
        found, mean, rho = code_launch(reader, code, k=k)
        part = found["dq"] / (unit * rho.unsqueeze(-1))
        read[..., start : start + channels] = part[..., : size - start]
    sign, o = reader.to_heads(code), mean.unsqueeze(-1)
    plain = declared.sums("keys", keys)
    expected = plain - o * declared.sums("keys", keys, by_key=sign)
    weight = 1 - o * sign.unsqueeze(2) if keys == 1 else None
    unread = reader.outside_rows if keys == 1 else reader.outside_rows | ~(o.abs() <= _BALANCED)
    return compare("dq", (1, keys), read, expected, plain, weight, unread)


def _read_dk(reader: Reader, rows: int, code: torch.Tensor) -> View:
    import torch

    case, declared, channels = reader.case, reader.probe.declared, reader.case.dim_qk
    size = reader.group * bins(case.seq_q, rows)
    read = torch.zeros(*case.shape_k[:3], size, dtype=torch.float64, device=reader.probe.device)
    unit = reader.scaling.row * reader.probe.scale * reader.amplitude
    mean = rho = torch.zeros(case.shape_q[:3], dtype=torch.float64, device=reader.probe.device)
    for start in range(0, size, channels):
        q = cells(reader.row_cells(rows) - start, channels) * reader.amplitude
        found, mean, rho = code_launch(reader, code, q=q)
        part = found["dk"] * code.unsqueeze(-1) / unit
        read[..., start : start + channels] = part[..., : size - start]
    sign = reader.to_heads(code).unsqueeze(2)
    expected = declared.sums("rows", rows, by_row=rho) - sign * declared.sums("rows", rows, by_row=rho * mean)
    unread = reader.outside_keys
    if rows > 1:
        wild = (~(mean.abs() <= _BALANCED)).double()
        unread = unread | (reader.row_bins(wild, rows) > 0).unsqueeze(-1)
    weight = rho.unsqueeze(-1) * (1 - mean.unsqueeze(-1) * sign) if rows == 1 else None
    plain = declared.sums("rows", rows)
    return compare("dk", (rows, 1), reader.by_head(read, rows), expected, plain, weight, unread)
