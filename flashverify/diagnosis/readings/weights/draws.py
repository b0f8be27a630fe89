"""Dropout by the draws of other pairs, in words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.truth import kept_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

__all__ = ["draws_at", "other_draws"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pairs:
    """Numbers of what is drawn for: sequence and row `[B, Sq]`, key `[B, Sk]`, head `[Hq]`."""

    sequence: Tensor
    row: Tensor
    key: Tensor
    head: Tensor


def other_draws() -> Iterator[tuple[str, Callable[[Effect], Tensor | None]]]:
    """Draws in words, as `the draws of the next key`, and what they multiply the weights by, `[B, Hq, Sq, Sk]`."""
    for words, change in _changes():
        yield f"the draws of {words}", partial(lambda e, c: _factor(e, c), c=change)


def draws_at(effect: Effect, of: Callable[[Tensor], Tensor], what: str) -> Tensor | None:
    """What the draws of other keys, rows or heads multiply the weights by, `[B, Hq, Sq, Sk]`.

    Args:
        effect: a case; None without dropout.
        of: of the numbers of keys, rows or heads, those whose draws are taken.
        what: `key`, `row` or `head`.
    """
    return _factor(effect, lambda _, pairs: {what: of(getattr(pairs, what)).clamp(min=0)})


def _changes() -> Iterator[tuple[str, Callable[[Effect, _Pairs], dict[str, Tensor]]]]:
    yield "the first sequence", lambda e, x: {"sequence": x.sequence * 0}
    for step in (1, -1, 2, -2, 4, -4):
        yield f"head h {step:+d}", partial(lambda e, x, s: {"head": x.head + s}, s=step)
        yield f"key j {step:+d}", partial(lambda e, x, s: {"key": (x.key + s).clamp(min=0)}, s=step)
        yield f"row i {step:+d}", partial(lambda e, x, s: {"row": (x.row + s).clamp(min=0)}, s=step)
    yield "the first head", lambda e, x: {"head": x.head * 0}
    yield "the kv head's number", lambda e, x: {"head": x.head // e.scene.group}
    yield "head h % group", lambda e, x: {"head": x.head % e.scene.group}
    yield (
        "the row's position, the shift of the mask in it",
        lambda e, x: {"row": (x.row + e.scene.at.shift).clamp(min=0)},
    )
    yield "the first row", lambda e, x: {"row": x.row * 0}
    yield "the first key", lambda e, x: {"key": x.key * 0}
    yield from _numbered()
    for t in (2, 4, 8, *TILES):
        yield f"key j modulo {t}", partial(lambda e, x, t: {"key": x.key % t}, t=t)
        yield f"row i modulo {t}", partial(lambda e, x, t: {"row": x.row % t}, t=t)
        yield f"the first key of the tile of {t}", partial(lambda e, x, t: {"key": x.key // t * t}, t=t)
        yield f"the first row of the tile of {t}", partial(lambda e, x, t: {"row": x.row // t * t}, t=t)
        for other in TILES if t in TILES else ():
            if other != t:
                far = f"key j % {t} of a tile that begins at {other} times the number of its tile of {t}"
                yield far, partial(lambda e, x, t, o: {"key": x.key // t * o + x.key % t}, t=t, o=other)
                far = f"row i % {t} of a tile that begins at {other} times the number of its tile of {t}"
                yield far, partial(lambda e, x, t, o: {"row": x.row // t * o + x.row % t}, t=t, o=other)


def _numbered() -> Iterator[tuple[str, Callable[[Effect, _Pairs], dict[str, Tensor]]]]:
    """Other numbers of rows and keys than those in the sequence."""
    rows: tuple[tuple[str, Callable[[Effect, Tensor], Tensor]], ...] = (
        ("the row's number in the buffer", lambda e, row: _count(row)),
        ("the row's number from the end of the sequence", lambda e, row: (e.scene.at.rows - 1 - row).clamp(min=0)),
        ("the row's number from the end of the keys", lambda e, row: (e.scene.at.keys - 1 - row).clamp(min=0)),
        ("row i + keys - rows", lambda e, row: (row + e.scene.at.keys - e.scene.at.rows).clamp(min=0)),
        ("row i // group", lambda e, row: row // e.scene.group),
        ("row i * group", lambda e, row: row * e.scene.group),
    )
    keys: tuple[tuple[str, Callable[[Effect, Tensor], Tensor]], ...] = (
        ("the key's number in the buffer", lambda e, key: _count(key)),
        ("the key's number from the end of the keys", lambda e, key: (e.scene.at.key_limit - 1 - key).clamp(min=0)),
    )
    yield (
        "the numbers in the buffers, not in the sequence",
        lambda e, x: {"row": _count(x.row), "key": _count(x.key)},
    )
    for words, number in rows:
        yield words, partial(lambda e, x, n: {"row": n(e, x.row)}, n=number)
    for words, number in keys:
        yield words, partial(lambda e, x, n: {"key": n(e, x.key)}, n=number)


def _count(x: Tensor) -> Tensor:
    return torch.arange(x.shape[1]).expand_as(x)


def _factor(effect: Effect, change: Callable[[Effect, _Pairs], dict[str, Tensor]]) -> Tensor | None:
    case, at, problem = effect.scene.case, effect.scene.at, effect.scene.problem
    if not case.dropout:
        return None
    pairs = _Pairs(sequence=at.row_sequence, row=at.row, key=at.key, head=torch.arange(case.heads_q))
    changed = change(effect, pairs)
    head, sequence = changed.get("head", pairs.head), changed.get("sequence", pairs.sequence)
    rows, keys = slice(0, case.seq_q), slice(0, case.seq_k)
    found = []
    for further in (-1, 0, 1):  # behind the last head of a sequence comes the first one of the next
        keep = kept_pairs(
            seed=problem.dropout_seed,
            offset=problem.dropout_offset,
            p=case.dropout,
            heads=case.heads_q,
            sequence=(sequence + further).clamp(min=0),
            row=changed.get("row", pairs.row),
            key=changed.get("key", pairs.key),
        )
        found.append(keep(rows, keys))
    chosen = head + case.heads_q
    return torch.cat(found, 1)[:, chosen.clamp(min=0, max=3 * case.heads_q - 1)].double() / (1.0 - case.dropout)
