"""Every term that logits are made of, or could be."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flashverify.checks.passes.logits import modified, products
from flashverify.diagnosis.readings.weights.bias_terms import alibi_terms, bias_terms
from flashverify.diagnosis.readings.weights.bias_values import bias_value_terms
from flashverify.diagnosis.readings.weights.learned_numbers import learned_numbers
from flashverify.diagnosis.readings.weights.mapped_terms import mapped_terms
from flashverify.diagnosis.readings.weights.merge_terms import merge_terms
from flashverify.diagnosis.readings.weights.numbering import numbered_terms
from flashverify.diagnosis.readings.weights.operand_terms import operand_terms
from flashverify.diagnosis.readings.weights.term import BIASES, Term, bias_of, signed
from flashverify.diagnosis.readings.weights.tile_terms import tile_terms
from flashverify.diagnosis.readings.weights.value_terms import value_terms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

__all__ = ["terms_of"]


def terms_of(effect: Effect) -> Iterator[Term]:
    """The terms that the case of `effect` has, the likelier ones first."""
    case = effect.scene.case
    yield Term(words="the scaled dot product", kind="declared", of=_product)
    if case.logits.softcap:
        yield Term(
            words="the capped product",
            kind="declared",
            of=lambda e: modified(products(e.scene.inputs), e.scene.inputs, ()),
        )
        yield Term(words="the logits are not capped", kind="exchange", of=_uncapped)
    for name, words in BIASES:
        if getattr(effect.scene.problem, name) is not None:
            yield Term(words=words, kind="declared", of=partial(lambda e, n: bias_of(e, n), n=name))
    if effect.scene.problem.slopes is not None:
        yield from alibi_terms()
    if effect.scene.problem.bias is not None:
        yield from bias_terms()
    yield from numbered_terms(effect.scene)
    yield from mapped_terms(effect)
    yield from learned_numbers(effect)
    yield from operand_terms(case)
    yield Term(words="the key's number", kind="extra", of=lambda e: e.scene.at.key[:, None, None, :].double())
    yield Term(words="the distance of the key from the row's position", kind="extra", of=lambda e: signed(e).abs())
    yield from merge_terms()
    yield from tile_terms(effect)
    yield from value_terms(effect)
    yield from bias_value_terms(effect.scene)


def _product(effect: Effect) -> Tensor:
    return products(effect.scene.inputs)


def _uncapped(effect: Effect) -> Tensor | None:
    inputs = effect.scene.inputs
    scaled = products(inputs)
    return None if not inputs.softcap else scaled - modified(scaled, inputs, ())
