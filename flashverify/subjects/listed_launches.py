"""The launches of the kernels over latent caches and over keys chosen by index: every dtype, at head dimensions of every tile width."""

from __future__ import annotations

import importlib
import itertools
from typing import TYPE_CHECKING

from flashverify.formats import DTYPES, FORMATS
from flashverify.subjects.bundled_launches import launch_of

if TYPE_CHECKING:
    from flashverify.subjects.launches import Launch

__all__ = ["latent_launches", "selected_launches"]

_DTYPES = tuple(FORMATS[name].library for name in DTYPES)
_LATENT = ((512, 64), (128, 64), (64, 8), (24, 16), (16, 0))
"""(latent channels, rotary channels)."""
_FORMS = ((16, "none", 0), (128, "causal", 64), (128, "window", 5))
"""(packed rows, mask, page size)."""
_SELECTED = ((64, 64), (128, 128), (192, 128), (72, 40), (256, 256))


def latent_launches(package: str) -> list[Launch]:
    """The launches of the kernel over a latent cache of a package of the shape of `flashverify_kernels`."""
    import torch

    aot = importlib.import_module(f"{package}.latent_aot")
    found = []
    for name, (dv, rope), (rows, mask, page) in itertools.product(_DTYPES, _LATENT, _FORMS):
        source = aot.latent_source(
            dv=dv,
            rope=rope,
            dtype=getattr(torch, name),
            rows=rows,
            mask=mask,
            page_size=page,
            split=page != 5,
            aligned=dv & (dv - 1) == 0,
        )
        found.append(launch_of(source, f"latent {name} d={dv + rope}/{dv} rows={rows} {mask} page={page}"))
    return found


def selected_launches(package: str) -> list[Launch]:
    """The launches of the kernels over keys chosen by index."""
    import torch

    aot = importlib.import_module(f"{package}.selected_aot")
    found = []
    choices = itertools.product(("forward", "dq", "dkdv"), _DTYPES, _SELECTED, (False, True))
    for kind, name, (d, dv), causal in choices:
        aligned = d & (d - 1) == 0
        source = aot.selected_source(
            kind, d=d, dv=dv, dtype=getattr(torch, name), causal=causal, dlse=not aligned, aligned=aligned
        )
        dims = f"d={d}" + (f"/{dv}" if dv != d else "")
        found.append(launch_of(source, f"selected_{kind} {name} {dims}{' causal' * causal}"))
    return found
