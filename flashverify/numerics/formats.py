"""Facts of the floating-point formats, as hexadecimal floats: no decimal is ever rounded on the way in."""

from dataclasses import dataclass

import torch

__all__ = ["FORMATS", "Format", "format_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One binary format under round to nearest even.

    Attributes:
        name: `"fp16"`, `"bf16"`, `"fp32"` or `"fp64"`.
        dtype: The torch dtype.
        u: Unit roundoff, half the spacing above 1: a normal result is `x (1 + d)`, `|d| <= u`.
        eta: Absolute error of a result below `min_normal`. Half the smallest subnormal for fp16, whose subnormals hardware honours;
            `min_normal` itself for the others, so that flushing to zero is covered.
        max: Largest finite value.
        overflow: Smallest magnitude that rounds to infinity, `max` plus half a spacing.
        min_normal: Smallest positive normal value.
        min_subnormal: Smallest positive value.
    """

    name: str
    dtype: torch.dtype
    u: float
    eta: float
    max: float
    overflow: float
    min_normal: float
    min_subnormal: float


def _format(name: str, dtype: torch.dtype, **facts: str) -> Format:
    return Format(name=name, dtype=dtype, **{key: float.fromhex(text) for key, text in facts.items()})


# fp64 overflows at 0x1.fffffffffffff8p+1023, which fp64 itself cannot hold: its threshold is infinity.
FORMATS: dict[str, Format] = {
    "fp16": _format(
        "fp16",
        torch.float16,
        u="0x1p-11",
        eta="0x1p-25",
        max="0x1.ffcp+15",
        overflow="0x1.ffep+15",
        min_normal="0x1p-14",
        min_subnormal="0x1p-24",
    ),
    "bf16": _format(
        "bf16",
        torch.bfloat16,
        u="0x1p-8",
        eta="0x1p-126",
        max="0x1.fep+127",
        overflow="0x1.ffp+127",
        min_normal="0x1p-126",
        min_subnormal="0x1p-133",
    ),
    "fp32": _format(
        "fp32",
        torch.float32,
        u="0x1p-24",
        eta="0x1p-126",
        max="0x1.fffffep+127",
        overflow="0x1.ffffffp+127",
        min_normal="0x1p-126",
        min_subnormal="0x1p-149",
    ),
    "fp64": _format(
        "fp64",
        torch.float64,
        u="0x1p-53",
        eta="0x1p-1022",
        max="0x1.fffffffffffffp+1023",
        overflow="inf",
        min_normal="0x1p-1022",
        min_subnormal="0x1p-1074",
    ),
}


def format_of(name: str | torch.dtype) -> Format:
    """Look a format up by its name or by its torch dtype.

    Args:
        name: `"fp16"`, `"bf16"`, `"fp32"`, `"fp64"` or the torch dtype of one of them.

    Returns:
        The format.

    Raises:
        ValueError: If there is no such format.
    """
    for entry in FORMATS.values():
        if name in (entry.name, entry.dtype):
            return entry
    raise ValueError(f"dtype={name!r} is not a known format; accepted: {', '.join(FORMATS)}")
