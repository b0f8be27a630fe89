"""Models of the weights that one case suggests, the simpler ones first."""

from __future__ import annotations

import math
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.extents import EVERY, tile_extents
from flashverify.diagnosis.readings.masks.other_masks import other_rows
from flashverify.diagnosis.readings.masks.rules import Rule, rules
from flashverify.diagnosis.readings.weights.draws import other_draws
from flashverify.diagnosis.readings.weights.dropped_places import dropped_places
from flashverify.diagnosis.readings.weights.hidden_models import hidden_models
from flashverify.diagnosis.readings.weights.learned_draws import learned_draws
from flashverify.diagnosis.readings.weights.models import DECLARED, Model, deviation_of, kept_factor, tolerance_of
from flashverify.diagnosis.readings.weights.row_terms import centred, terms_in_rows
from flashverify.diagnosis.readings.weights.term import COEFFICIENTS, Term
from flashverify.diagnosis.readings.weights.terms import terms_of
from flashverify.diagnosis.trials import work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect
from flashverify.diagnosis.readings.weights.models import Deviation

__all__ = ["LEAVES_OUT", "proposals"]

LEAVES_OUT = "O leaves the weights out"

_RULES = 25
_DRAWN = 6000
"""Pairs of all heads up to which other draws are tried."""
_CLOSE = 1e-3
"""Relative distance at which a number is a named coefficient."""


def proposals(effect: Effect) -> Iterator[Model]:
    """Models that may make the weights of `effect`; each is to be tried on it and on other cases."""
    yield DECLARED
    for words, where in other_rows():
        yield Model(
            f"each row of O has the weights of {words}",
            partial(lambda e, w: w(e, DECLARED.logits(e)), w=where),
            kept_factor,
        )
    if effect.scene.case.dropout:
        yield from dropped_places(effect)
        known = other_draws() if work(effect.scene.case) <= _DRAWN else ()
        for words, factor in chain(known, learned_draws(effect)):
            yield Model(f"dropout has {words}", DECLARED.logits, factor)
    deviation = deviation_of(effect)
    hidden = bool(deviation.hidden.any())
    if not hidden:
        yield from _whole(effect, deviation)
    if bool(deviation.wrong.any()) and not hidden:
        yield from _at_places(effect, deviation)
        for term, more, rule in terms_in_rows(effect, deviation, _terms(effect)):
            for words, of in _of_term(effect, term, more):
                yield _model(words, of, rule)
    if hidden:
        yield from hidden_models(effect, deviation)
    if not hidden:
        yield from _missing_in_tiles(effect)
        yield from _two_terms(effect, deviation)


def _model(words: str, of: Callable[[Effect], Tensor | None], where: Rule | None = None) -> Model:
    """The declared logits plus what `of` gives, at the visible pairs that `where` says."""

    def logits(effect: Effect) -> Tensor | None:
        more = of(effect)
        if more is None:
            return None
        if where is not None:
            more = torch.where(where.where(effect.scene), more, 0.0)
        return (effect.logits + more).masked_fill(~effect.visible, -math.inf)

    return Model(words if where is None else f"{words}, {_where(where)}", logits, kept_factor)


def _where(rule: Rule) -> str:
    """`for keys behind the diagonal, only in the first query head`; of whole rows the place alone."""
    return rule.words.removeprefix(f"{EVERY}, ") if rule.places else f"for {rule.words}"


def _scaled(term: Term, name: str, factor: Callable[[Effect], float]) -> tuple[str, Callable[[Effect], Tensor | None]]:
    """The words for so many times a term more than declared, and what is added."""

    def of(effect: Effect) -> Tensor | None:
        found = term.of(effect)
        more = factor(effect)
        return None if found is None or not math.isfinite(more) else found * (more - (term.kind == "declared"))

    if term.kind == "declared":
        return f"the logits in effect hold {name} {term.words}", of
    return f"{name} {term.words} is added to the logits", of


def _added(term: Term, number: float) -> tuple[str, Callable[[Effect], Tensor | None]]:
    """The words for `number` times a term that no declared logits have, and what is added."""
    of = _scaled(term, "", lambda e: number)[1]
    text = f"{number:.4g}"
    if term.added is not None:
        return term.added(text), of
    whole = {"1": "is added to", "-1": "is subtracted from"}.get(text)
    return (f"{term.words} {whole} the logits" if whole else f"{text} times {term.words} is added to the logits"), of


def _of_term(effect: Effect, term: Term, more: float) -> Iterator[tuple[str, Callable[[Effect], Tensor | None]]]:
    """In words, `more` times a term beside the declared logits: by a name of the factor where it has one."""
    if term.kind == "exchange":
        if abs(more - 1) < _CLOSE:
            yield term.words, term.of
        return
    total = more + (term.kind == "declared")
    if abs(total) < _CLOSE and term.kind == "declared":
        yield f"the logits in effect leave out {term.words}", lambda e: None if (x := term.of(e)) is None else -x
        return
    whole = round(total) if abs(total - round(total)) < _CLOSE else None
    for name, factor in COEFFICIENTS if term.kind == "declared" or whole is None else ():
        value = factor(effect.scene.case)
        if math.isfinite(value) and abs(total - value) <= _CLOSE * abs(value):
            yield _scaled(term, name, partial(lambda e, f: f(e.scene.case), f=factor))
    if abs(more) > _CLOSE:
        number = float(total if whole is None else whole)
        if term.kind == "declared":
            yield _scaled(term, f"{number:.4g} times", lambda e: number)
        else:
            yield _added(term, number)


def _terms(effect: Effect) -> list[tuple[Term, Tensor]]:
    if "terms" not in effect.scene.memo:
        found = []
        for term in terms_of(effect):
            value = term.of(effect)
            if value is not None and bool((value != 0).any()) and bool(torch.isfinite(value).all()):
                found.append((term, value.expand_as(effect.weights)))
        effect.scene.memo["terms"] = found
    terms: list[tuple[Term, Tensor]] = effect.scene.memo["terms"]
    return terms


def _whole(effect: Effect, deviation: Deviation) -> Iterator[Model]:
    """One term more or less at all pairs."""
    read = deviation.read & torch.isfinite(deviation.off)
    off = centred(deviation.off, read)
    for term, value in _terms(effect):
        t = centred(value, read)
        size = float((t * t).sum())
        if size < 1e-12:
            continue
        more = float((off * t).sum()) / size
        tolerance = 4 * tolerance_of(effect)
        if bool(((off - more * t).abs() <= tolerance + 1e-4 * t.abs()).all()):
            for words, of in _of_term(effect, term, more):
                yield _model(words, of)


def _missing_in_tiles(effect: Effect) -> Iterator[Model]:
    """A declared term that some tiles leave out, where the rest of a row does not tell on which side of the border it is missing."""
    leaving = [(t.words, t) for t, _ in _terms(effect) if t.kind == "declared"]
    sizes = [size for size in dict.fromkeys((effect.scene.form.block_n, *TILES)) if size]
    for words, term in leaving:
        for size in sizes:
            for extent in tile_extents(size):
                more = _scaled(term, "no", lambda e: 0.0)[1]
                yield _model(f"the logits in effect leave out {words}", more, Rule(extent))


def _two_terms(effect: Effect, deviation: Deviation) -> Iterator[Model]:
    """Two terms more or less at all pairs."""
    read = deviation.read & torch.isfinite(deviation.off)
    if not bool((deviation.read == read).all()) or not bool(deviation.wrong.any()):
        return
    off = centred(deviation.off, read)[read]
    if len(off) < 24:
        return
    free = [(term, centred(value, read)[read]) for term, value in _terms(effect) if term.kind != "exchange"][:14]
    tolerance = 4 * tolerance_of(effect)[read]
    for n, (first, a) in enumerate(free):
        for second, b in free[n + 1 :]:
            x = torch.stack([a, b], 1)
            gram = x.T @ x
            if float(torch.linalg.det(gram)) < 1e-8 * float(gram[0, 0] * gram[1, 1] + 1e-30):
                continue
            k = torch.linalg.solve(gram, x.T @ off)
            if bool(((x @ k - off).abs() <= tolerance + 1e-4 * x.abs().sum(1)).all()):
                for words, of in _of_term(effect, first, float(k[0])):
                    for more_words, more in _of_term(effect, second, float(k[1])):
                        joined = more_words.replace("the logits in effect ", "")
                        yield _model(f"{words} and {joined}", _sum(of, more))


def _sum(
    first: Callable[[Effect], Tensor | None], second: Callable[[Effect], Tensor | None]
) -> Callable[[Effect], Tensor | None]:
    def of(effect: Effect) -> Tensor | None:
        a, b = first(effect), second(effect)
        return None if a is None or b is None else a + b

    return of


def _at_places(effect: Effect, deviation: Deviation) -> Iterator[Model]:
    """What differs at some pairs alone."""
    for words, of, told in _values(effect, deviation):
        for rule in islice(rules(effect.scene, deviation.wrong, deviation.read & told, "", hidden=False), _RULES):
            yield _model(words, of, rule)


def _values(effect: Effect, deviation: Deviation) -> Iterator[tuple[str, Callable[[Effect], Tensor | None], Tensor]]:
    """What the logits of the wrong pairs have in common; bool `[B, Hq, Sq, Sk]`: where that would show."""
    off = deviation.off[deviation.wrong]
    near = tolerance_of(effect)
    tolerance, everywhere = near[deviation.wrong], torch.ones_like(deviation.wrong)
    if bool((off == -math.inf).all()):
        yield LEAVES_OUT, lambda e: torch.full_like(e.logits, -math.inf), everywhere
        return
    if not bool(torch.isfinite(off).all()):
        return
    middle = float(off.median())
    if bool(((off - middle).abs() <= 2 * tolerance).all()):
        number = math.exp(middle)
        text = f"{round(number)}" if abs(number - round(number)) < _CLOSE * number else f"{number:.4g}"
        yield (
            f"O weighs keys {text} times as much as the other keys of the row",
            lambda e: torch.full_like(e.logits, math.log(float(text))),
            everywhere,
        )
    for term, value in _terms(effect):
        t = value[deviation.wrong]
        size = float((t * t).sum())
        if size < 1e-12:
            continue
        more = float((off * t).sum()) / size
        if bool(((off - more * t).abs() <= 2 * tolerance + 1e-4 * t.abs()).all()):
            told = (more * value).abs() > 4 * near
            for words, of in _of_term(effect, term, more):
                yield words, of, told | deviation.wrong
