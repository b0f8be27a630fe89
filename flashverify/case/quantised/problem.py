"""The view of a problem that a kernel of quantised k and v takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.case.quantised.codes import code_format
from flashverify.errors import UsageError

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Pages, Problem

__all__ = ["QuantisedPages", "QuantisedView", "as_quantised"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedPages:
    """The codes of k and v in pages of a pool, with the scales of their keys.

    Key j of sequence b lies in page `table[b, j // page_size]`, at `j % page_size`. Its scale is `[page, j % page_size // keys_per_scale, h]`
    where scales are of tokens or blocks; else it is that of the view, since it serves more than a page.

    Args:
        k: `[P, page_size, Hkv, D]` in the format's dtype; of `int4` bytes `[P, page_size, Hkv, D / 2]`.
        v: likewise, with Dv channels.
        table: `[B, n]` int32; entries beyond the last page of a sequence are garbage, and so are those before the window of every row.
        k_scale: fp32 `[P, page_size / keys_per_scale, Hkv]`, or None; v_scale likewise.
        k_zero: int32 of that shape, or None; v_zero likewise.
    """

    k: torch.Tensor
    v: torch.Tensor
    table: torch.Tensor
    k_scale: torch.Tensor | None
    v_scale: torch.Tensor | None
    k_zero: torch.Tensor | None
    v_zero: torch.Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedView:
    """q, and the codes of k and v with their scales.

    Key j of head h stands for `scale * (code - zero)`, with the scale and the zero of `[b, h, j // keys_per_scale]`. Scales and zeros are `[1, 1, 1]` where one serves the whole tensor, `[B, Hkv, 1]` where one serves a head of a sequence,
    `[B, Hkv, Sk]` one a key, and `[B, Hkv, ceil(Sk / keys_per_scale)]` one a block of keys.

    Args:
        codes: the name of the format: `e4m3`, `e5m2`, `int8` or `int4`.
        scales: what shares a scale: `tensor`, `head`, `token` or `block`.
        keys_per_scale: neighbouring keys that share a scale.
        q: `[B, Hq, Sq, D]` in `dtype`; codes in the format's dtype where `q_scale` is given.
        k: `[B, Hkv, Sk, D]` in the format's dtype; of `int4` bytes `[B, Hkv, Sk, D / 2]`, channel 2c in the low half of byte c.
        v: `[B, Hkv, Sk, Dv]` likewise.
        k_scale: fp32; v_scale likewise.
        k_zero: int32 of the shape of the scales; None without zero points. Then the zero of `int4` is 8 and of the others 0.
        v_zero: likewise.
        key_lengths: `[B]` int32, or None. Codes from there on are padding, and so are the scales of tokens and blocks behind them.
        dtype: of the case, and so of O.
        q_scale: of a q in codes, fp32: as k_scale, with query heads and rows in place of kv heads and keys; None of values.
        rows_per_scale: neighbouring rows that share a scale of q; 1 of values.
        pages: the same codes in pages, which a kernel of a paged cache reads instead; None of a case without pages.
    """

    codes: str
    scales: str
    keys_per_scale: int
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    k_scale: torch.Tensor
    v_scale: torch.Tensor
    k_zero: torch.Tensor | None
    v_zero: torch.Tensor | None
    key_lengths: torch.Tensor | None
    dtype: torch.dtype
    q_scale: torch.Tensor | None = None
    rows_per_scale: int = 1
    pages: QuantisedPages | None = None


def as_quantised(problem: Problem, *, as_bytes: bool = False) -> QuantisedView:
    """The view; views of the problem's own memory.

    Args:
        problem: of a quantised case.
        as_bytes: codes as uint8 in every format.

    Raises:
        UsageError: the case is not quantised.
    """
    import torch

    case, how = problem.case, problem.case.quantised
    if how is None:
        raise UsageError(
            "p.quantised() is not accepted of a case without quantised=...: "
            "declare Supports(quantised=...), which draws no other cases"
        )
    assert problem.k_codes is not None
    assert problem.v_codes is not None
    assert problem.k_scale is not None
    assert problem.v_scale is not None
    dtype = torch.uint8 if as_bytes else getattr(torch, code_format(how.codes).library)
    return QuantisedView(
        codes=how.codes,
        scales=how.scales,
        keys_per_scale=how.keys_per_scale(case.seq_k),
        q=problem.q if problem.q_codes is None else problem.q_codes.view(dtype),
        dtype=problem.q.dtype,
        q_scale=problem.q_scale,
        rows_per_scale=how.keys_per_scale(case.seq_q) if how.q else 1,
        k=problem.k_codes.view(dtype),
        v=problem.v_codes.view(dtype),
        k_scale=problem.k_scale,
        v_scale=problem.v_scale,
        k_zero=problem.k_zero,
        v_zero=problem.v_zero,
        key_lengths=problem.key_lengths,
        pages=None if problem.pages is None else _pages(problem.pages, dtype),
    )


def _pages(pages: Pages, dtype: torch.dtype) -> QuantisedPages:
    return QuantisedPages(
        k=pages.k.view(dtype),
        v=pages.v.view(dtype),
        table=pages.table,
        k_scale=pages.k_scale,
        v_scale=pages.v_scale,
        k_zero=pages.k_zero,
        v_zero=pages.v_zero,
    )
