"""The launches of the decoding and merging kernels: page layouts, masks and dtypes, at head dimensions of every tile width."""

from __future__ import annotations

import importlib
import itertools
from typing import TYPE_CHECKING

from flashverify.formats import DTYPES, FORMATS
from flashverify.subjects.bundled_launches import launch_of

if TYPE_CHECKING:
    from flashverify.subjects.launches import Launch

__all__ = ["decode_launches"]

_DTYPES = tuple(FORMATS[name].library for name in DTYPES)
_DIMS = ((64, 64), (128, 128), (72, 72), (192, 128), (256, 256))
_FORMS = (
    (8, "none", 0, ()),
    (8, "causal", 64, ()),
    (24, "tree", 5, ()),
    (64, "window", 16, ()),
    (8, "causal", 0, ("softcap", "alibi", "bias")),
)
"""(packed rows, mask, page size, terms); with terms there are query lengths too."""


def decode_launches(package: str) -> list[Launch]:
    """The launches of a kernel package of the shape of `flashverify_kernels`."""
    import torch

    aot = importlib.import_module(f"{package}.decode_aot")
    found = []
    for name, (d, dv), (rows, mask, page, terms) in itertools.product(_DTYPES, _DIMS, _FORMS):
        aligned = d & (d - 1) == 0
        source = aot.decode_source(
            d=d,
            dv=dv,
            dtype=getattr(torch, name),
            rows=rows,
            mask=mask,
            page_size=page,
            terms=terms,
            query_lengths=bool(terms),
            split=page != 16,
            aligned=aligned,
        )
        dims = f"d={d}" + (f"/{dv}" if dv != d else "")
        found.append(launch_of(source, f"decode {name} {dims} rows={rows} {mask} page={page}" + " terms" * bool(terms)))
    for name, (_, dv), parts, backward in itertools.product(_DTYPES, _DIMS, (2, 64), (False, True)):
        source = aot.merge_source(parts=parts, dv=dv, dtype=getattr(torch, name), backward=backward)
        found.append(launch_of(source, f"merge{' backward' * backward} {name} d={dv} parts={parts}"))
    return found
