"""What is lost where an operand of a product is subnormal and flushed to zero (docs/bounds.md, section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.formats import FORMATS
from flashverify.numerics.known_absent import somewhere

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from flashverify.numerics.chunk import Chunk
    from flashverify.numerics.coefficients import Coefficients
    from flashverify.numerics.form import Form

__all__ = ["CAST", "flushable_part", "flushable_parts", "flushed_operands", "flushed_products", "vanishing_products"]

CAST = 1 + 2.0**-7
"""A weight or a dS is that much larger at most once it is cast to the input dtype."""

_W = FORMATS["fp32"].min_normal
# The smaller half of an operand that tf32x3 splits is a multiple of its spacing, 2^-23 of its power of two.
_SPLIT = 2.0**24


def flushable_part(x: Tensor, dtype: str, form: Form) -> Tensor | None:
    """How much of each element of an operand hardware may flush to zero, in the shape of `x`; None where it is nothing.

    A normal number and a zero keep their value. Of a subnormal one everything may be lost. tf32x3 may lose the smaller half, less
    than the smallest normal number, of an operand below `2^24` times that number.

    Args:
        x: The operand, finite, in any floating dtype that holds it.
        dtype: The dtype that the kernel was given, `"fp16"`, `"bf16"`, `"fp32"`; hardware keeps the subnormal numbers of fp16.
        form: The kernel's numerical form.
    """
    return flushable_parts((x,), dtype, form)[0]


def flushable_parts(operands: Sequence[Tensor], dtype: str, form: Form) -> list[Tensor | None]:
    """What `flushable_part` says of each, with one wait for a GPU."""
    if FORMATS[dtype].subnormals:
        return [None] * len(operands)
    split = dtype == "fp32" and form.dot == "tf32x3"

    def part(x: Tensor) -> Tensor | None:
        size = x.abs()
        if not x.is_cuda and (x.numel() == 0 or size.amin().item() >= _W * _SPLIT):
            return None
        return torch.where(size < (_W * _SPLIT if split else _W), size.clamp(max=_W), 0.0)

    parts = [part(x) for x in operands]
    answers = iter(somewhere([found for found in parts if found is not None]))
    return [found if found is not None and next(answers) else None for found in parts]


def vanishing_products(operands: Sequence[Tensor], factor: float) -> list[Tensor | None]:
    """The largest loss of `factor x` in fp32 where the product may be subnormal, in the shape of each `x`; None where it is nothing. One wait for a GPU."""
    sizes = [x.abs() * factor for x in operands]
    parts = [torch.where(size < 2 * _W, size.clamp(max=_W), 0.0) for size in sizes]
    return [part if there else None for part, there in zip(parts, somewhere(parts), strict=True)]


def flushed_products(a: Tensor, part_a: Tensor | None, b: Tensor, part_b: Tensor | None) -> Tensor | None:
    """How far flushed operands may move `A B^T`: `part(A) |B|^T + |A| part(B)^T`, `[G, M, N]`; None where that is 0.

    Args:
        a: |A|, `[G, M, C]`.
        part_a: What of it may be flushed, or None.
        b: |B|, `[G, N, C]`.
        part_b: Likewise.
    """
    found = None if part_a is None else part_a @ b.mT
    if part_b is None:
        return found
    other = a @ part_b.mT
    return other if found is None else found.add_(other)


def flushed_operands(c: Coefficients, chunk: Chunk) -> tuple[Tensor | None, Tensor | None]:
    """What flushing takes of K and of Q, and of its product with the scale, beside each dS in dQ and dK; None where it is nothing.

    The chunk keeps both for the next caller, who changes neither.
    """
    name = f"flushed operands {c.u}"
    known = chunk.cache.get(name)
    if isinstance(known, tuple) and known[0] is c:
        return known[1], known[2]
    of_k, of_q = vanishing_products((chunk.ak, chunk.aq), c.operand) if c.operand else (None, None)
    found = _flushed(c, chunk.small_k, of_k), _flushed(c, chunk.small_q, of_q)
    chunk.cache[name] = c, *found
    return found


def _flushed(c: Coefficients, small: Tensor | None, product: Tensor | None) -> Tensor | None:
    lost = None if small is None or not c.flush else small * (c.grad_scale * CAST)
    if product is None:
        return lost
    return product * CAST if lost is None else lost.add_(product, alpha=CAST)
