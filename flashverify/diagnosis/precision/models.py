"""Which steps a kernel may round that it should not, each a change of the steps that its form declares."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from flashverify.diagnosis.precision.eight_bit_steps import eight_bit_models
from flashverify.diagnosis.precision.eight_bits import weight_casts
from flashverify.diagnosis.precision.model import Model
from flashverify.diagnosis.precision.model_tables import ADDENDS, BETWEEN, EVERYWHERE, KEPT, PIECES, ROUNDED, STEPS
from flashverify.diagnosis.precision.products import PRODUCTS, rounded_channels, rounded_products
from flashverify.diagnosis.precision.rounding import NARROW, same, to_bits, to_dtype
from flashverify.diagnosis.precision.settings import rounded_settings
from flashverify.diagnosis.precision.steps import declared
from flashverify.outputs import BACKWARD, FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.precision.rounding import Rounding
    from flashverify.diagnosis.precision.steps import Steps

__all__ = ["TILES", "Model", "models"]

TILES = (None, 16, 32, 64, 128)
"""Sizes of tiles that are tried where a form does not say; None is all at once."""
_PIECES = (32, 64, 128)
"""Keys of a piece where no form and no launch says how many pieces there are."""
_ROWS = (16, 32, 64, 128)
_CHANNELS = (16, 32, 64, 128)
_BITS = (9, 10, 12, 13, 14, 15, 16)
"""Of a function that an instruction approximates."""
_LN2 = math.log(2.0)
_WIDER = ("rounded to bf16", "rounded to fp16")
_TF32 = "rounded to tf32"


def _set(name: str, rounding: Rounding) -> Callable[[Steps], Steps]:
    """Rounds a step; what is returned is rounded once more, to its dtype."""

    def change(steps: Steps) -> Steps:
        then = getattr(steps, name)
        changed: dict[str, Any] = {name: (lambda x: then(rounding(x))) if name in ("o", "gradient") else rounding}
        return replace(steps, **changed)

    return change


def _in_base_2(rounding: Rounding) -> Rounding:
    """Of a number times log2(e)."""
    return lambda x: rounding(x / _LN2) * _LN2


def models(scene: Scene) -> Iterator[Model]:
    """Every model of a run of that kind."""
    yield from (model for model in _all(scene) if model.acts_on(scene))


def _all(scene: Scene) -> Iterator[Model]:
    yield from _single()
    for words, settings, needs in rounded_settings():
        yield Model(words=words, change=partial(replace, settings=settings), outputs=EVERYWHERE, needs=needs)
    yield from _in_other_units()
    yield from _together()
    yield from _pieces(scene)
    yield from _inside(scene)
    yield from _of_channels(scene)
    yield from _between(scene)
    yield from eight_bit_models()
    yield from (
        Model(words=words, change=_set("p", cast), outputs=("o",), tiled=True) for words, cast in weight_casts(scene)
    )
    if scene.case.quantised is not None and scene.case.quantised.scales in ("tensor", "head"):
        for how in _WIDER:
            words = f"the accumulator of O before the scale of V, {how} after each tile"
            yield Model(words=words, change=_set("code_sum", NARROW[how]), outputs=("o",), tiled=True)
    for rows in _ROWS:
        yield Model(
            words=f"one running maximum for each tile of {rows} rows in place of each row's own",
            change=lambda steps, n=rows: replace(steps, rows=n),  # type: ignore[misc]
            outputs=FORWARD,
            tiled=True,
        )
    yield Model(words="P in fp32", change=_set("p", same), outputs=("o", "dv"))
    yield Model(words="dS in fp32", change=_set("ds", same), outputs=("dq", "dk"))


def _single() -> Iterator[Model]:
    """One step that is rounded."""
    for name, words, outputs, needs, tiled in (*STEPS, *KEPT, *ROUNDED):
        for how, rounding in NARROW.items():
            if (name, words, outputs, needs, tiled) in ROUNDED and how not in _WIDER:
                continue
            text = words.format(how) if "{}" in words else f"{words} {how}"
            yield Model(
                words=text,
                change=_set(name, rounding),
                outputs=outputs,
                step=name,
                how=how,
                needs=needs,
                tiled=tiled,
                addend=name in ADDENDS,
            )
    for name, words in (("q", "Q"), ("k", "K"), ("v", "V"), ("do", "dO")):
        outputs = next(row[2] for row in STEPS if row[0] == name)
        change = _set(name, to_dtype("tf32"))
        yield Model(words=f"{words} {_TF32}", change=change, outputs=outputs, step="dots", how=_TF32)


def _inside(scene: Scene) -> Iterator[Model]:
    """The operands of one product alone."""
    for name, found, words, how in rounded_products(scene.case.dtype):
        yield Model(
            words=words,
            change=lambda steps, n=name, f=found: replace(steps, inside={n: f}),  # type: ignore[misc]
            outputs=PRODUCTS[name][2],
            step="dots" if "tf32" in how else "",
            how=how,
            tiled=name == "o",
            several=True,
        )


def _of_channels(scene: Scene) -> Iterator[Model]:
    """Channels of Q and K that V has not."""
    for words, found, how in rounded_channels(scene.case.dim_v, scene.case.dim_qk):
        change = partial(replace, inside={"logits": found})
        yield Model(words=words, change=change, outputs=EVERYWHERE, how=how)


def _between(scene: Scene) -> Iterator[Model]:
    """What stands between two steps, and the sum over channels in parts."""
    for how in _WIDER:
        for name, words, outputs, needs, tiled in BETWEEN:
            change = _set(name, NARROW[how])
            yield Model(
                words=words.format(how), change=change, outputs=outputs, step=name, how=how, needs=needs, tiled=tiled
            )
        for channels, words in _parts_of_channels(scene):
            yield Model(
                words=f"the sum over channels of Q and K, {how} after {words}",
                change=lambda steps, r=NARROW[how], c=channels: replace(steps, part_product=r, channels=c),  # type: ignore[misc]
                outputs=EVERYWHERE,
            )
    for count in _BITS:
        rough = to_bits(count)
        for names, words, outputs, needs in (
            (("tanh",), "the tanh of a softcap", EVERYWHERE, "softcap"),
            (("p", "summed"), "the exponential of the softmax", FORWARD, ""),
        ):
            yield Model(
                words=f"{words}, good to {count} bits",
                change=lambda steps, n=names, r=rough: replace(steps, **dict.fromkeys(n, r)),  # type: ignore[misc]
                outputs=outputs,
                needs=needs,
                tiled="p" in names,
            )


def _parts_of_channels(scene: Scene) -> Iterator[tuple[int, str]]:
    """Sizes of parts, in words."""
    dim, first = scene.case.dim_qk, scene.case.dim_v
    if first < dim <= 2 * first:
        yield first, "the first ones, as many as V has"
    yield from (
        (size, f"every {size} of them") for size in _CHANNELS if size < dim and not (size == first and dim <= 2 * first)
    )


def _in_other_units() -> Iterator[Model]:
    """One step that is rounded in base 2, and others that go by two settings."""
    for how, rounding in NARROW.items():
        for name, words, outputs in (
            ("logit", "the logits in base 2, {}", EVERYWHERE),
            ("exponent", "logits minus what is subtracted from them, in base 2, {}", EVERYWHERE),
            ("lse", "the LSE in base 2, {}", ("lse",)),
            ("read_lse", "the LSE that the backward reads, in base 2, {}", BACKWARD),
        ):
            yield Model(
                words=words.format(how),
                change=lambda steps, n=name, r=rounding: replace(steps, **{n: r}, unit=_LN2),  # type: ignore[misc]
                outputs=outputs,
            )
        yield Model(
            words=f"the accumulator, {how} after each tile of each head of a group",
            change=lambda steps, r=rounding: replace(steps, accumulator=r, through_group=True),  # type: ignore[misc]
            outputs=("dk", "dv"),
            step="accumulator",
            how=how,
            tiled=True,
        )
        yield Model(
            words=f"the factor of the rescale, {how}",
            change=lambda steps, r=rounding: replace(steps, alpha=r, alpha_of_o=r),  # type: ignore[misc]
            outputs=FORWARD,
            tiled=True,
        )
    for how in _WIDER:
        rounding = _in_base_2(NARROW[how])
        for name, words, needs in (
            ("q", "Q times log2(e)", ""),
            ("scaled_q", "Q times the scale and log2(e)", ""),
            ("terms", "the bias times log2(e)", "biases"),
            ("slopes", "the slopes of ALiBi times log2(e)", "slopes"),
            ("sink", "the sink times log2(e)", "sink"),
        ):
            step = "scaled_q_in_base_2" if name == "scaled_q" else ""
            change = _set(name, rounding)
            yield Model(words=f"{words}, {how}", change=change, outputs=EVERYWHERE, step=step, how=how, needs=needs)


def _together() -> Iterator[Model]:
    """Several steps that are rounded alike."""
    for how, rounding in (*NARROW.items(), (_TF32, to_dtype("tf32"))):
        step = "dots" if how == _TF32 else ""
        for words, names, outputs in (
            ("Q and K {}", ("q", "k"), EVERYWHERE),
            ("Q, K, V and dO {}", ("q", "k", "v", "do"), (*FORWARD, *BACKWARD)),
            ("P {}, for V and for the row sum", ("p", "summed"), FORWARD),
            ("P {}, for dV and for dS", ("p", "p_of_ds"), BACKWARD),
            ("every operand of a dot {}", ("q", "k", "v", "do", "p", "ds"), (*FORWARD, *BACKWARD)),
        ):
            yield Model(
                words=words.format(how),
                change=lambda steps, n=names, r=rounding: replace(steps, **dict.fromkeys(n, r)),  # type: ignore[misc]
                outputs=outputs,
                step=step if names[0] == "q" else "",
                how=how,
                tiled="p" in names,
                several=True,
            )


def _pieces(scene: Scene) -> Iterator[Model]:
    """What is merged of pieces of the keys."""
    sizes: list[tuple[str, dict[str, int]]] = [(f" of {keys} keys", {"piece": keys}) for keys in _PIECES]
    if declared(scene).splits is not None:
        sizes = [("", {})]
    for name, words, base_2 in PIECES:
        for size, cut in sizes:
            for how in _WIDER:
                rounding = _in_base_2(NARROW[how]) if base_2 else NARROW[how]
                yield Model(
                    words=words.format(size, how),
                    change=lambda steps, n=name, r=rounding, c=cut: replace(steps, **{n: r, **c}),  # type: ignore[misc]
                    outputs=("o",) if name != "part_lse" else FORWARD,
                    step=name,
                    how=how,
                    tiled=True,
                )
