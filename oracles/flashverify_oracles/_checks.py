"""Arguments of the float64 oracle: what is refused, and how a non-finite value is set aside."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def finite(x: Tensor) -> tuple[Tensor, Tensor | None]:
    """`x` as float64 with its non-finite values replaced by 0, and where they were (None if nowhere)."""
    return all_finite(x)[0]


def all_finite(*tensors: Tensor) -> list[tuple[Tensor, Tensor | None]]:
    """What `finite` says of each, with one wait for a GPU."""
    wide = [x.detach().to(torch.float64) for x in tensors]
    sums = [x.sum() for x in wide]
    known = torch.stack(sums).tolist() if wide[0].is_cuda else [float(total) for total in sums]
    found: list[tuple[Tensor, Tensor | None]] = []
    for x, total in zip(wide, known, strict=True):
        if math.isfinite(total):  # a sum that merely overflows takes the other branch, which is right too
            found.append((x, None))
        else:
            bad = ~torch.isfinite(x)
            found.append((x.masked_fill(bad, 0.0), bad))
    return found


def check_tensor(name: str, x: object, shape: tuple[int, ...] | int, device: torch.device | None) -> None:
    """Refuse anything but a floating tensor of this shape, or number of dimensions, on this device (None: any)."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor, got {x!r} (type={type(x).__name__})")
    if not x.is_floating_point():
        raise TypeError(f"{name} must have a floating dtype, got {x.dtype}")
    if (x.ndim if isinstance(shape, int) else x.shape) != shape:
        wanted = f"{shape} dimensions" if isinstance(shape, int) else f"the shape {shape}"
        raise ValueError(f"{name} must have {wanted}, got {tuple(x.shape)}")
    if device is not None and x.device != device:
        raise ValueError(f"{name} must be on the device of q, {device}, got {x.device}")


def check_number(name: str, x: object) -> float:
    """`x` as a float; refuses anything but a finite number."""
    if isinstance(x, bool) or not isinstance(x, int | float):
        raise TypeError(f"{name} must be a float, got {x!r} (type={type(x).__name__})")
    if not math.isfinite(x):
        raise ValueError(f"{name} must be finite, got {x!r}")
    return float(x)


def check_softcap(x: object) -> float | None:
    """`x` as a positive float, or None for no cap (None or 0)."""
    cap = 0.0 if x is None else check_number("softcap", x)
    if cap < 0.0:
        raise ValueError(f"softcap must be positive, or 0 or None for no cap, got {x!r}")
    return cap or None


def check_dropout(x: object, *, kept: bool) -> float:
    """`x` as a probability below 1; refuses a positive one without a `keep`."""
    p = check_number("dropout", x)
    if not 0.0 <= p < 1.0:
        raise ValueError(f"dropout must be in [0, 1), got {x!r}")
    if p and not kept:
        raise ValueError(f"keep must be given with dropout={x!r}")
    return p


def broadcasts(have: tuple[int, ...], want: tuple[int, ...]) -> bool:
    """Whether a tensor of the shape `have` broadcasts to exactly `want`."""
    return len(have) <= len(want) and all(h in (1, w) for h, w in zip(reversed(have), reversed(want), strict=False))
