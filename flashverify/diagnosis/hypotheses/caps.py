"""Wrong forms of the softcap, and caps of what the mask hides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits, products
from flashverify.diagnosis.hypotheses.masking import IN_THE_SUM, in_the_sum_alone
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["CAPS"]


def _form(capped: Callable[[Tensor, float], Tensor]) -> Callable[[Scene], Iterator[Alternative]]:
    """Another function of the scaled products `[B, Hq, Sq, Sk]` and the cap."""

    def build(scene: Scene) -> Iterator[Alternative]:
        i, cap = scene.inputs, scene.inputs.softcap
        if cap and scene.case.seq_k:
            x = products(i)
            yield Alternative(inputs=replace(i, softcap=None, biases=(*i.biases, capped(x, cap) - x)))

    return build


def _hidden_at_the_cap(scene: Scene) -> Iterator[Alternative]:
    """Minus infinity is put in before the cap, which makes the cap with a minus sign of it: hidden pairs take part."""
    i, cap = scene.inputs, scene.inputs.softcap
    if not cap or i.visible is None or not scene.case.seq_k:
        return
    at = scene.at
    inside = (at.row_sequence[:, None, :, None] == at.key_sequence[:, None, None, :]) & (at.row < at.rows)[
        :, None, :, None
    ]
    for keys, detail in ((inside & (at.key < at.key_limit)[:, None, None, :], ""), (inside, "padded keys too")):
        hidden = keys & ~i.visible
        if bool(hidden.any()):
            bias = torch.where(i.visible, 0.0, -cap - logits(replace(i, visible=None)))
            inputs = replace(i, visible=i.visible | keys, biases=(*i.biases, bias))
            yield Alternative(inputs=inputs, detail=detail)
            said = ", ".join(filter(None, (detail, IN_THE_SUM)))
            yield Alternative(inputs=inputs, finish=in_the_sum_alone(scene), detail=said)


CAPS = (
    Semantics(
        name="softcap-clamps",
        sentence="logits are cut off at the cap, without the tanh",
        build=_form(lambda x, cap: x.clamp(-cap, cap)),
        outputs=FORWARD,
    ),
    Semantics(
        name="softcap-not-multiplied-back",
        sentence="the softcap is tanh(logits / cap), which is not multiplied by the cap",
        build=_form(lambda x, cap: torch.tanh(x / cap)),
        outputs=FORWARD,
    ),
    Semantics(
        name="softcap-not-divided",
        sentence="the softcap is cap * tanh(logits): they are not divided by the cap",
        build=_form(lambda x, cap: cap * torch.tanh(x)),
        outputs=FORWARD,
    ),
    Semantics(
        name="softcap-inverted",
        sentence="the softcap takes the inverse of the cap",
        build=_form(lambda x, cap: torch.tanh(x * cap) / cap),
        outputs=FORWARD,
    ),
    Semantics(
        name="softcap-twice",
        sentence="the logits are capped twice",
        build=_form(lambda x, cap: cap * torch.tanh(torch.tanh(x / cap))),
        outputs=FORWARD,
    ),
    Semantics(
        name="softcap-after-mask",
        sentence="the cap comes after the mask: hidden pairs take part with the cap as a negative logit",
        build=_hidden_at_the_cap,
        outputs=FORWARD,
    ),
)
