"""The rules. Each says whether it rejects the outputs of a kernel; every comparison is written so that NaN is rejected.

| rule | source | O | gradients | LSE |
|---|---|---|---|---|
| `allclose` | the common `torch.allclose(out, ref, atol=1e-2, rtol=1e-2)` | fp32, rounded | as O | not compared |
| `allclose+lse` | the same | as above | as above | as above |
| `flash-2` | flash-attention tests/test_flash_attn.py | 2 times the largest error of the low-precision baseline; decoding from a cache 3 times (ALiBi 5 times) + 1e-5 | dQ, dK, dV: 3 times | not compared |
| `flash-3` | flash-attention hopper/test_flash_attn.py, tests/cute/ | 2 times (softcap 3 times) + 2 max abs(ref + 0.3 - 0.3 - ref) | the same, softcap + 3e-4 more | not compared |
| `flex` | pytorch test/inductor/test_flex_attention.py | mean error at most 1.1 times that of eager, fp32 10 times | the same | 2e-2 + 2e-2 abs(ref) |
| `gpucheck` | Akasxh/gpucheck src/gpucheck/assertions/{close,tolerances}.py | dtype table | as O | not compared |
| `gpuemu` | Skelf-Research/gpuemu validator.rs, arXiv 2606.20128 and its companion on tolerances | absolute, by dtype; NaN or Inf in the output | none | none |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch

__all__ = ["FOREIGN", "GRADIENTS", "Reference", "absolute", "baseline", "flat", "fudge"]

Tensors = Mapping[str, torch.Tensor]
GRADIENTS = ("dq", "dk", "dv", "dbias", "dsink")

GPUCHECK = {"fp16": 1e-2, "bf16": 5e-2, "fp32": 1e-4}
"""atol and rtol, which are equal (tolerances.py, `_DEFAULT_TOLERANCES`)."""
GPUEMU = {"fp16": 5e-2, "bf16": 5e-2, "fp32": 1e-3}
"""atol of attention: fp16 as published; bf16 assumed to be the same; fp32 assumed, the tightest power of ten without a false alarm
on gpuemu's own inputs (largest error 1.7e-4)."""


class Reference(Protocol):
    """What a rule may compare with; `References` computes it."""

    dtype: str
    cached: bool
    softcap: bool
    alibi: bool

    @property
    def fp32(self) -> Tensors: ...  # noqa: D102

    @property
    def low(self) -> Tensors: ...  # noqa: D102

    @property
    def eager(self) -> Tensors: ...  # noqa: D102

    @property
    def golden(self) -> Tensors: ...  # noqa: D102


Rule = Callable[[Tensors, Reference], bool | None]
"""True: rejected; False: accepted; None: the suite has no such problem."""


def flat(actual: torch.Tensor, expected: torch.Tensor, atol: float, rtol: float) -> bool:
    """Whether abs(actual - expected) > atol + rtol abs(expected) somewhere; infinities must be equal, NaN never is."""
    return not torch.allclose(actual.double(), expected.double(), atol=atol, rtol=rtol)


def absolute(actual: torch.Tensor, expected: torch.Tensor, atol: float) -> bool:
    """Whether the output holds a NaN or an infinity, whatever the reference holds, or an error above `atol`."""
    if not bool(torch.isfinite(actual).all()):
        return True
    return bool(((actual.double() - expected.double()).abs() > atol).any())


def baseline(
    actual: torch.Tensor, reference: torch.Tensor, low: torch.Tensor, multiple: float, atol: float = 0.0
) -> bool:
    """Whether the largest error is above `multiple` times that of a low-precision baseline, plus `atol`."""
    if not actual.numel():
        return False
    error, allowed = _largest(actual, reference), multiple * _largest(low, reference) + atol
    return not error <= allowed


def fudge(golden: torch.Tensor, eager: torch.Tensor, actual: torch.Tensor, factor: float) -> bool:
    """Whether the mean error is above `factor` times that of an eager computation, or either is NaN."""
    if not actual.numel():
        return False
    error, allowed = (float((golden.double() - x.double()).abs().mean()) for x in (actual, eager))
    return not error <= factor * allowed


def _largest(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max())


def _noise(reference: torch.Tensor) -> float:
    """2 max abs(ref + 0.3 - 0.3 - ref), computed in the reference's dtype."""
    return 2.0 * _largest(reference + 0.3 - 0.3, reference) if reference.numel() else 0.0


def _of(names: tuple[str, ...], outputs: Tensors) -> list[str]:
    return [name for name in names if name in outputs]


def _allclose(outputs: Tensors, ref: Reference) -> bool:
    return any(flat(outputs[n], ref.fp32[n], 1e-2, 1e-2) for n in _of(("o", *GRADIENTS), outputs))


def _allclose_lse(outputs: Tensors, ref: Reference) -> bool:
    return any(flat(outputs[n], ref.fp32[n], 1e-2, 1e-2) for n in _of(("o", "lse", *GRADIENTS), outputs))


def _flash_2(outputs: Tensors, ref: Reference) -> bool | None:
    if ref.dtype == "fp32":
        return None
    multiple, atol = ((5.0 if ref.alibi else 3.0), 1e-5) if ref.cached else (2.0, 0.0)
    return baseline(outputs["o"], ref.fp32["o"], ref.low["o"], multiple, atol) or any(
        baseline(outputs[n], ref.fp32[n], ref.low[n], 3.0) for n in _of(GRADIENTS[:3], outputs)
    )


def _flash_3(outputs: Tensors, ref: Reference) -> bool | None:
    if ref.dtype == "fp32":
        return None
    multiple, more = (3.0, 3e-4) if ref.softcap else (2.0, 0.0)
    return any(
        baseline(outputs[n], ref.fp32[n], ref.low[n], multiple, _noise(ref.fp32[n]) + (0.0 if n == "o" else more))
        for n in _of(("o", *GRADIENTS[:3]), outputs)
    )


def _flex(outputs: Tensors, ref: Reference) -> bool:
    factor = 10.0 if ref.dtype == "fp32" else 1.1
    return any(fudge(ref.golden[n], ref.eager[n], outputs[n], factor) for n in _of(("o", *GRADIENTS), outputs)) or (
        "lse" in outputs and flat(outputs["lse"], ref.golden["lse"].float(), 2e-2, 2e-2)
    )


def _gpucheck(outputs: Tensors, ref: Reference) -> bool:
    tolerance = GPUCHECK[ref.dtype]
    return any(flat(outputs[n], ref.fp32[n], tolerance, tolerance) for n in _of(("o", *GRADIENTS), outputs))


def _gpuemu(outputs: Tensors, ref: Reference) -> bool:
    return absolute(outputs["o"], ref.golden["o"].to(outputs["o"].dtype), GPUEMU[ref.dtype])


FOREIGN: dict[str, Rule] = {
    "allclose": _allclose,
    "allclose+lse": _allclose_lse,
    "flash-2": _flash_2,
    "flash-3": _flash_3,
    "flex": _flex,
    "gpucheck": _gpucheck,
    "gpuemu": _gpuemu,
}
"""The rules of others by name."""
