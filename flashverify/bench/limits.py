"""The speed limits of a device, measured beside what they limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flashverify.bench.records import Measurement, Workload
    from flashverify.case.problem import Problem

__all__ = ["COPY", "LIMITS", "MATRIX", "copied", "limit_times", "multiplied", "product_operations", "roofline"]

COPY = "copy"
"""Copies half of K's and V's bytes: as many are read and written as K and V have together."""
MATRIX = "matrix product"
"""A square matrix product by torch in the dtype of the workload."""
LIMITS = (MATRIX, COPY)
_SIZES = {"cuda": 8192, "cpu": 512}


def copied(problem: Problem) -> Callable[[], object]:
    """The call of `COPY`."""
    import torch

    target = torch.empty_like(problem.k)
    return lambda: target.copy_(problem.k)


def multiplied(dtype: str, device: str) -> Callable[[], object]:
    """The call of `MATRIX`: two normal matrices of 8,192 x 8,192 on a GPU, of 512 x 512 on a CPU."""
    import torch

    size = _SIZES[device]
    generator = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(size, size, generator=generator, dtype=FORMATS[dtype].dtype, device=device) for _ in "ab")
    target = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=target)


def product_operations(device: str) -> float:
    """Floating-point operations of a call of `MATRIX`."""
    return 2.0 * _SIZES[device] ** 3


def limit_times(workload: Workload, limits: Mapping[str, Measurement]) -> tuple[float, float]:
    """What the workload takes at least, ms: for its operations at the measured rate of products, and for its bytes at that of a copy.

    Williams, Waterman, Patterson: Roofline, 2009. NaN where a limit was not measured.
    """
    product, copy = (limits.get(name) for name in LIMITS)
    if product is None or copy is None or not (product.milliseconds and copy.milliseconds):
        return float("nan"), float("nan")
    return workload.operations / product.tflops / 1e9, workload.traffic / copy.bandwidth / 1e6


def roofline(workload: Workload, limits: Mapping[str, Measurement]) -> float:
    """The shortest time of the workload, ms; NaN where a limit was not measured."""
    products, bytes_ = limit_times(workload, limits)
    return max(products, bytes_)
