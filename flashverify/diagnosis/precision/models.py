"""Which steps a kernel may round that it should not, each a change of the steps that its form declares."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flashverify.diagnosis.precision.rounding import NARROW, same, to_dtype
from flashverify.outputs import BACKWARD, FORWARD, OF_DS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.diagnosis.precision.emulation import Steps
    from flashverify.diagnosis.precision.rounding import Rounding

__all__ = ["TILES", "Model", "models"]

TILES = (None, 16, 32, 64, 128)
"""Sizes of tiles that are tried where a form does not say; None is all at once."""
_LN2 = math.log(2.0)
_DQ_DK = tuple(name for name in ("dq", "dk") if name in OF_DS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """One step that is computed otherwise than declared.

    Attributes:
        words: what is done to what, to follow "errors look like".
        change: the steps, given the declared ones.
        outputs: those that it reaches.
        several: it changes several steps; one that changes a single step is named first.
    """

    words: str
    change: Callable[[Steps], Steps]
    outputs: tuple[str, ...]
    several: bool = False


_STEPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("p", "P", ("o", "dv")),
    ("summed", "the row sum of P", ("o", "lse")),
    ("ds", "dS", _DQ_DK),
    ("dp", "dP", _DQ_DK),
    ("delta", "delta", ("delta", *_DQ_DK)),
    ("logit", "the logits", (*FORWARD, "dq", "dk", "dv")),
    ("product", "the products of Q and K before their scale", (*FORWARD, "dq", "dk", "dv")),
    ("q", "Q", (*FORWARD, "dq", "dk", "dv")),
    ("k", "K", (*FORWARD, "dq", "dk", "dv")),
    ("v", "V", ("o", *_DQ_DK)),
    ("do", "dO", BACKWARD),
    ("scaled_q", "Q times the scale", (*FORWARD, "dq", "dk", "dv")),
    ("read_lse", "the LSE that the backward reads", ("dq", "dk", "dv")),
)
_KEPT: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("accumulator", "the accumulator, {} after each tile", ("o", "dq", "dk", "dv")),
    ("row_sum", "the row sum, {} after each tile", FORWARD),
    ("alpha", "the factor of the rescale, {}", FORWARD),
    ("lse", "the LSE, {}", ("lse",)),
    ("o", "O, {}", ("o",)),
    ("gradient", "the gradient, {}", ("dq", "dk", "dv")),
)


def _set(name: str, rounding: Callable[..., object]) -> Callable[[Steps], Steps]:
    def change(steps: Steps) -> Steps:
        changed: dict[str, object] = {name: rounding}
        return replace(steps, **changed)  # type: ignore[arg-type]

    return change


def _in_base_2(rounding: Rounding) -> Rounding:
    """Of a number times log2(e)."""
    return lambda x: rounding(x / _LN2) * _LN2


def models() -> Iterator[Model]:
    """Every model there is."""
    for name, words, outputs in _STEPS:
        for how, rounding in NARROW.items():
            text = f"the row sum of P {how}" if name == "summed" else f"{words} {how}"
            yield Model(words=text, change=_set(name, rounding), outputs=outputs)
        if name in ("q", "k", "v", "do"):
            yield Model(words=f"{words} rounded to tf32", change=_set(name, to_dtype("tf32")), outputs=outputs)
    for name, words, outputs in _KEPT:
        for how, rounding in NARROW.items():
            yield Model(words=words.format(how), change=_set(name, rounding), outputs=outputs)
    for how, rounding in NARROW.items():
        yield Model(
            words=f"the logits in base 2, {how}",
            change=lambda steps, r=rounding: replace(steps, logit=r, unit=_LN2),  # type: ignore[misc]
            outputs=(*FORWARD, "dq", "dk", "dv"),
        )
        yield Model(
            words=f"the accumulator, {how} after each tile of each head of a group",
            change=lambda steps, r=rounding: replace(steps, accumulator=r, through_group=True),  # type: ignore[misc]
            outputs=("dk", "dv"),
        )
        yield Model(
            words=f"the LSE in base 2, {how}",
            change=lambda steps, r=rounding: replace(steps, lse=r, unit=_LN2),  # type: ignore[misc]
            outputs=("lse",),
        )
    for how, rounding in (*NARROW.items(), ("rounded to tf32", to_dtype("tf32"))):
        yield Model(
            words=f"Q and K {how}",
            change=lambda steps, r=rounding: replace(steps, q=r, k=r),  # type: ignore[misc]
            outputs=(*FORWARD, "dq", "dk", "dv"),
            several=True,
        )
        yield Model(
            words=f"Q, K, V and dO {how}",
            change=lambda steps, r=rounding: replace(steps, q=r, k=r, v=r, do=r),  # type: ignore[misc]
            outputs=(*FORWARD, *BACKWARD),
            several=True,
        )
        yield Model(
            words=f"P {how}, for V and for the row sum",
            change=lambda steps, r=rounding: replace(steps, p=r, summed=r),  # type: ignore[misc]
            outputs=FORWARD,
            several=True,
        )
        yield Model(
            words=f"every operand of a dot {how}",
            change=lambda steps, r=rounding: replace(steps, q=r, k=r, v=r, do=r, p=r, ds=r),  # type: ignore[misc]
            outputs=(*FORWARD, *BACKWARD),
            several=True,
        )
    for how in ("rounded to bf16", "rounded to fp16"):
        rounding = _in_base_2(NARROW[how])
        for name, words in (("q", "Q times log2(e)"), ("scaled_q", "Q times the scale and log2(e)")):
            yield Model(words=f"{words}, {how}", change=_set(name, rounding), outputs=(*FORWARD, "dq", "dk", "dv"))
    yield Model(words="P in fp32", change=lambda steps: replace(steps, p=same), outputs=("o", "dv"))
    yield Model(words="dS in fp32", change=lambda steps: replace(steps, ds=same), outputs=_DQ_DK)
