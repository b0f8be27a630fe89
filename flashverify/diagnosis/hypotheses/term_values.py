"""Biases, slopes, tables and sinks of which the values of one sign count otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flashverify.diagnosis.hypothesis import Alternative, Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["TERM_VALUES"]

_CHANGES: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("positive{} count as 0", lambda x: x.clamp(max=0)),
    ("negative{} count as 0", lambda x: x.clamp(min=0)),
    ("negative{} count as positive ones of their size", lambda x: x.abs()),
    ("positive{} count as negative ones of their size", lambda x: -x.abs()),
)
"""Changes in words, with room for what has the values, and what they make of the values."""
_TERMS = (("bias", "bias", "entries"), ("slopes", "alibi", "slopes"), ("relative_bias", "relative-bias", "entries"))
_SHOWN = {"bias": "of the bias", "slopes": "of ALiBi", "relative_bias": "of the relative bias"}


def _of_bias(name: str, what: str) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        present = [each for each, _, _ in _TERMS if getattr(scene.problem, each) is not None]
        if name not in present:
            return
        biases, at = list(scene.inputs.biases), present.index(name)
        for words, change in _CHANGES:
            sign = -1.0 if name == "slopes" else 1.0  # ALiBi adds minus a slope times a distance
            biases[at] = sign * change(sign * scene.inputs.biases[at].double())
            inputs = replace(scene.inputs, biases=tuple(biases))
            yield Alternative(inputs=inputs, detail=words.format(f" {what}"))

    return build


def _of_sinks(scene: Scene) -> Iterator[Alternative]:
    sink = scene.inputs.sink
    for words, change in _CHANGES if sink is not None else ():
        assert sink is not None
        yield Alternative(inputs=replace(scene.inputs, sink=change(sink)), detail=words.format(" sinks"))


TERM_VALUES = (
    *(
        Semantics(
            name=f"{short}-values-of-one-sign",
            sentence=f"{what} {_SHOWN[name]} of one sign count otherwise",
            build=_of_bias(name, what),
            one_way=True,
        )
        for name, short, what in _TERMS
    ),
    Semantics(
        name="sink-values-of-one-sign",
        sentence="sinks of one sign count otherwise",
        build=_of_sinks,
        one_way=True,
    ),
)
