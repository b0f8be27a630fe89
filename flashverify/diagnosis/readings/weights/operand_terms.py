"""Terms of the dot product: with another head's, sequence's, key's or row's K or Q, or over some channels alone."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from flashverify.checks.passes.logits import modified, products
from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.operand_maps import of_channels
from flashverify.diagnosis.readings.weights.term import HEADS, Term

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.readings.weights.effect import Effect

__all__ = ["operand_terms"]


def operand_terms(case: Case) -> Iterator[Term]:
    """Products with another head's, sequence's, key's or row's K or Q, or over some channels only."""

    def exchanged(move: Callable[[Effect, Tensor], Tensor], name: str) -> Callable[[Effect], Tensor | None]:
        def of(effect: Effect) -> Tensor | None:
            inputs = effect.scene.inputs
            whole = dataclasses.replace(inputs, k=effect.scene.problem.k.double().nan_to_num(0.0, 0.0, 0.0))
            changed: dict[str, Any] = {name: move(effect, getattr(whole, name))}
            other = dataclasses.replace(whole, **changed)
            return modified(products(other), inputs, ()) - modified(products(whole), inputs, ())

        return of

    heads: tuple[tuple[str, Callable[[Effect, Tensor], Tensor]], ...] = (
        ("the first kv head", lambda e, h: h * 0),
        ("the next kv head", lambda e, h: h + 1),
        ("the kv head before", lambda e, h: h - 1),
        ("the last kv head", lambda e, h: h * 0 - 1),
    )
    for words, source in heads if case.heads_kv > 1 else ():
        yield Term(
            words=f"K is that of {words}, V is not",
            kind="exchange",
            of=exchanged(partial(lambda e, k, s: k[:, s(e, torch.arange(k.shape[1])) % k.shape[1]], s=source), "k"),
        )
    for words, head in HEADS if case.heads_q > 1 else ():
        yield Term(
            words=f"Q is that of {words}",
            kind="exchange",
            of=exchanged(partial(lambda e, q, s: q[:, s(e, torch.arange(q.shape[1])) % q.shape[1]], s=head), "q"),
        )
    for name, axis, what in (("k", 0, "sequence"), ("q", 0, "sequence"), ("k", 2, "key"), ("q", 2, "row")):
        moves: list[tuple[str, Callable[[Effect, Tensor], Tensor]]] = [
            (f"the next {what}", partial(lambda e, x, a: x.roll(-1, a), a=axis)),
            (f"the {what} before", partial(lambda e, x, a: x.roll(1, a), a=axis)),
            (f"the first {what}", partial(lambda e, x, a: x.narrow(a, 0, 1).expand_as(x), a=axis)),
            (
                f"the {what} before, the first one's own",
                partial(lambda e, x, a: x.index_select(a, (torch.arange(x.shape[a]) - 1).clamp(min=0)), a=axis),
            ),
            (
                f"the next {what}, the last one's own",
                partial(
                    lambda e, x, a: x.index_select(a, (torch.arange(x.shape[a]) + 1).clamp(max=x.shape[a] - 1)), a=axis
                ),
            ),
        ]
        if axis == 2:
            for t in TILES:
                moves += [
                    (
                        f"the first {what} of the tile of {t}",
                        partial(lambda e, x, t: x[:, :, torch.arange(x.shape[2]) // t * t], t=t),
                    ),
                    (
                        f"the {what} {t} further",
                        partial(lambda e, x, t: x[:, :, (torch.arange(x.shape[2]) + t) % x.shape[2]], t=t),
                    ),
                    (
                        f"the {what} {t} before",
                        partial(lambda e, x, t: x[:, :, (torch.arange(x.shape[2]) - t) % x.shape[2]], t=t),
                    ),
                    (
                        f"the {what} at its number modulo {t}",
                        partial(lambda e, x, t: x[:, :, torch.arange(x.shape[2]) % t], t=t),
                    ),
                ]
        for words, move in moves if axis == 2 or case.batch > 1 else ():
            what = "each key's V has the logit of" if (name, axis) == ("k", 2) else f"{name.upper()} is that of"
            yield Term(words=f"{what} {words}", kind="exchange", of=exchanged(move, name))
    for c in (8, 16, 32, 48, 64, 96, 128, 192):
        yield Term(
            words=f"the dot product leaves out channels from {c} on",
            kind="exchange",
            of=exchanged(partial(lambda e, k, c: k * (torch.arange(k.shape[3]) < c), c=c), "k"),
        )
        yield Term(
            words=f"the dot product leaves out the channels behind the last multiple of {c}",
            kind="exchange",
            of=exchanged(partial(lambda e, k, c: k * (torch.arange(k.shape[3]) < k.shape[3] // c * c), c=c), "k"),
        )
    for name in ("k", "q"):
        for words, change in of_channels():
            yield Term(
                words=f"the channels of {name.upper()} in the dot product are {words}",
                kind="exchange",
                of=exchanged(partial(lambda e, x, c: c(x), c=change), name),
            )
    yield Term(
        words="the dot product leaves out the last channel",
        kind="exchange",
        of=exchanged(lambda e, k: k * (torch.arange(k.shape[3]) < k.shape[3] - 1), "k"),
    )
