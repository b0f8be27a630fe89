"""The launches of the kernels of quantised K and V: every format of codes in every way to a number that all architectures have.

Weights in fp8 are left out: no GPU before sm_89 has them.
"""

from __future__ import annotations

import importlib
import itertools
from typing import TYPE_CHECKING

from flashverify.subjects.bundled_launches import launch_of

if TYPE_CHECKING:
    from flashverify.subjects.launches import Launch

__all__ = ["quantised_launches"]

_CODES = (("e4m3", False), ("e5m2", False), ("int8", True), ("int4", True))
_MODES = (("operand", False), ("folded", False), ("folded", True))
_DIMS = (64, 128)
_NARROW = (("float16", 16, "ieee"), ("float32", 16, "tf32x3"), ("float32", 256, "tf32"))
"""Dtypes, head dims and precisions whose tiles are the narrowest."""


def quantised_launches(package: str, *, decode: bool) -> list[Launch]:
    """The launches of a kernel package of the shape of `flashverify_kernels`.

    Args:
        package: its name.
        decode: those of the decoding kernel, or of the prefill.
    """
    import torch

    aot = importlib.import_module(f"{package}.quantised.aot")
    found = []
    choices = itertools.product(_CODES, _MODES, _DIMS)
    for ((codes, zeros), (mode, last), d), name in itertools.product(choices, ("float16", "bfloat16")):
        mask = "causal" if d == _DIMS[0] else "none"
        settings = {"codes": codes, "mode": mode, "scale_last": last, "zeros": zeros, "mask": mask}
        source = aot.quantised_source(decode=decode, d=d, dtype=getattr(torch, name), **settings)
        words = (name, f"d={d}", codes, mode, "scale last" * last, mask)
        found.append(launch_of(source, " ".join(["quantised", *filter(None, words)])))
    for (codes, _), (name, d, precision) in itertools.product(_CODES, _NARROW):
        tiles = {"codes": codes, "mode": "folded", "scale_last": True, "d": d, "dtype": getattr(torch, name)}
        source = aot.quantised_source(decode=decode, precision=precision, **tiles)
        found.append(launch_of(source, f"quantised {name} {precision} d={d} {codes} folded scale last none"))
    return found
