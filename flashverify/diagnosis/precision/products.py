"""The products of a kernel whose operands are rounded in one product alone, as where one of several is left to the default of a compiler."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.diagnosis.precision.rounding import NARROW, same, to_dtype, truncated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.precision.rounding import Rounding
    from flashverify.diagnosis.precision.steps import Steps
    from flashverify.truth import Inputs

__all__ = ["PRODUCTS", "Rounded", "logit_operands", "rounded_channels", "rounded_products", "times"]


class Rounded(NamedTuple):
    """What is done to the operands of a product, the left one and the right one, before it is taken."""

    left: Rounding = same
    right: Rounding = same


PRODUCTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "dv": ("P", "dO", ("dv",)),
    "dq": ("dS", "K", ("dq",)),
    "dk": ("dS", "Q", ("dk",)),
    "dp": ("dO", "V", ("dq", "dk", "dbias", "drelative_bias")),
    "logits": ("Q", "K", ("lse", "o", "dq", "dk", "dv", "dbias", "drelative_bias")),
    "o": ("P", "V", ("o",)),
}
"""By a product its operands, and the outputs that it reaches."""
_NAMES = {"dv": "dV", "dq": "dQ", "dk": "dK", "dp": "dP", "logits": "the logits", "o": "O"}


def rounded_products(dtype: str) -> Iterator[tuple[str, Rounded, str, str]]:
    """Products, what is done to their operands, words, and how they are rounded; both operands first, as a matrix unit takes them.

    Args:
        dtype: of the operands: those of 16 bits are none of tf32.
    """
    roundings = dict(NARROW)
    if dtype == "fp32":  # which is cut off to as many bits by tf32 as by fp16
        del roundings["truncated to fp16"]
        roundings = {"rounded to tf32": to_dtype("tf32"), "truncated to tf32": truncated("tf32"), **roundings}
    for how, rounding in roundings.items():
        for name, (left, right, _) in PRODUCTS.items():
            yield (
                name,
                Rounded(rounding, rounding),
                f"{left} and {right} {how} in the product that makes {_NAMES[name]}",
                how,
            )
    for how, rounding in roundings.items():
        for name, (left, right, _) in PRODUCTS.items():
            for words, found in ((left, Rounded(left=rounding)), (right, Rounded(right=rounding))):
                yield name, found, f"{words} {how} in the product that makes {_NAMES[name]}", how


def rounded_channels(first: int, dim: int) -> Iterator[tuple[str, Rounded, str]]:
    """What is done to the channels of Q and K from `first` on in the logits, as to the rotary part of a latent cache, and words; none without them."""
    for how in ("rounded to bf16", "rounded to fp16") if 0 < first < dim else ():
        part = partial(_of_channels, NARROW[how], first)
        for words, found in (("Q and K", Rounded(part, part)), ("Q", Rounded(left=part)), ("K", Rounded(right=part))):
            yield f"the channels of {words} beyond those of V, {how}, in the logits", found, how


def _of_channels(rounding: Rounding, first: int, x: Tensor) -> Tensor:
    """The channels from `first` on rounded."""
    return torch.cat([x[..., :first], rounding(x[..., first:])], -1)


def times(name: str, left: Tensor, right: Tensor, steps: Steps) -> Tensor:
    """The product of that name."""
    found = steps.inside.get(name)
    return left @ right if found is None else found.left(left) @ found.right(right)


def logit_operands(inputs: Inputs, steps: Steps) -> Inputs:
    """The problem with Q and K as they meet in the logits."""
    found = steps.inside.get("logits")
    return inputs if found is None else replace(inputs, q=found.left(inputs.q), k=found.right(inputs.k))
