"""Which elements of an output nobody writes: a rule that gives them on every case that is tried, and cases with none of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

import torch

from flashverify.case.changes import change
from flashverify.diagnosis.conditions import in_words
from flashverify.diagnosis.neighbours import neighbours, resized
from flashverify.diagnosis.places import PLACES, region_of
from flashverify.diagnosis.related_cases import variants
from flashverify.diagnosis.untouched import untouched
from flashverify.outputs import output as output_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

    _Rule = Callable[[Scene, str, torch.Size], Tensor | None]

__all__ = ["unwritten_places"]

_VARIANTS, _NEIGHBOURS = 14, 30
_SHARE = 0.4
_APART = 5
"""Rows more than keys, or keys more than rows, so that some have none whatever the lengths are."""
_FEWEST = 3
"""Failing cases on which a rule must give exactly what is not written, on one of them not all of it."""


def unwritten_places(trials: Trials, scene: Scene, output: str) -> str:
    """In words, without a full stop: `channels from Dv on`; empty where no rule holds.

    Args:
        trials: runs of the subject; further ones are made.
        scene: a run in which every wrong element is one that nobody wrote.
        output: whose elements are not written.
    """
    trials.keep(scene)
    more = chain(
        _apart(trials, scene.case),
        islice(variants(trials.subject, scene.case), _VARIANTS),
        islice(neighbours(trials.subject.supports, scene.case), _NEIGHBOURS),
    )
    for _ in trials.of(more, share=_SHARE):
        pass
    known = [(each, mask) for each in trials.scenes.values() if (mask := _unwritten(each, output)) is not None]
    failing = [each for each in known if bool(each[1].any())]
    if len(failing) < _FEWEST:
        return ""
    for words, rule in chain(_rules(output), _from_a_number(failing, output)):
        parts = told = False
        for each, mask in known:
            found = rule(each, output, mask.shape)
            if found is None or not torch.equal(found.expand(mask.shape) & _asked(each, output, mask), mask):
                break
            told |= bool(mask.any())
            parts |= bool(mask.any()) and not bool(mask.all())
        else:
            if told and (parts or any(not bool(mask.any()) for _, mask in known)):
                return words
    return ""


def _apart(trials: Trials, case: Case) -> Iterator[Case]:
    """Cases with rows that see no key of a sequence that has keys, and keys that no row of theirs sees."""
    rows, keys = case.seq_q, case.seq_k
    for more, others in ((max(9, rows, keys + _APART), max(4, keys)), (max(4, rows), max(9, keys, rows + _APART))):
        sized = resized(case, more, others)
        for causal in ("bottom-right", "top-left"):
            other = None if sized is None else change(sized, mask=replace(sized.mask, causal=causal))
            if other is not None and trials.subject.supports.refusal(other) is None:
                yield other


def _unwritten(scene: Scene, output: str) -> Tensor | None:
    """Bool, the declared elements of an output that nobody wrote; None where another element is wrong, or the case has not that output."""
    mask, wrong = untouched(scene, output), scene.failures.get(output)
    if output not in scene.outputs:
        return None
    if mask is None or wrong is None:
        return torch.zeros(scene.outputs[output].shape, dtype=torch.bool) if wrong is None else None
    return mask & _asked(scene, output, mask) if not bool((wrong & ~mask).any()) else None


def _asked(scene: Scene, output: str, mask: Tensor) -> Tensor:
    free = scene.free.get(output)
    return torch.ones_like(mask) if free is None else ~free


def _rules(output: str) -> Iterator[tuple[str, _Rule]]:
    axes = output_spec(output).axes
    yield "all of them", lambda _scene, _output, shape: torch.ones(shape, dtype=torch.bool)
    if axes[-1:] == ("dim_qk",):
        yield "channels from Dv on", _channels(lambda scene: scene.case.dim_v)
    if axes[-1:] == ("dim_v",):
        yield "channels from D on", _channels(lambda scene: scene.case.dim_qk)
    if "row" in axes:
        yield "rows that see no key", _lines(lambda scene: scene.truth.empty_rows)
        yield "rows behind the query lengths", _lines(lambda scene: (scene.at.row >= scene.at.rows)[:, None])
        yield "rows of sequences without keys", _lines(lambda scene: (scene.at.keys == 0)[:, None])
        yield (
            "rows of sequences without keys, and rows behind the query lengths",
            _lines(lambda scene: ((scene.at.keys == 0) | (scene.at.row >= scene.at.rows))[:, None]),
        )
        yield "rows behind the query lengths", _lines(lambda scene: (scene.at.row >= scene.at.rows)[:, None])
        yield (
            "rows behind as many as the window has keys, the row's own among them",
            _lines(lambda scene: _behind_window(scene, 1)),
        )
        yield "rows behind as many as the left side of the window", _lines(lambda scene: _behind_window(scene, 0))
        yield "rows from Sk on", _lines(lambda scene: (torch.arange(scene.case.seq_q) >= scene.case.seq_k)[None, None])
        yield "the last row of the buffer", _lines(lambda scene: _last(scene.case.seq_q))
        for lists, words in ((True, "the queries of a list"), (False, "all queries")):
            yield (
                f"pairs of query and head that no packed row r has if its member is r divided by {words} and its query r divided by the group",
                partial(_lost_of_packed_rows, lists=lists),
            )
    if "key" in axes and "row" not in axes:
        yield "keys that no row sees", _lines(_unseen)
        yield "keys of sequences without rows", _lines(lambda scene: (_rows_of_keys(scene) == 0)[:, None])
        yield "keys behind the key lengths", _lines(lambda scene: (scene.at.key >= scene.at.key_limit)[:, None])
        yield "keys from Sq on", _lines(lambda scene: (torch.arange(scene.case.seq_k) >= scene.case.seq_q)[None, None])
        yield "the last key of the buffer", _lines(lambda scene: _last(scene.case.seq_k))
    for place in PLACES:
        words = in_words((place,)).removeprefix("only ")
        yield (
            f"those {words}",
            lambda scene, output, shape, place=place: region_of(scene, (place,)).elements(output, shape),  # type: ignore[misc]
        )


def _behind_window(scene: Scene, more: int) -> Tensor:
    """Rows of the buffer behind as many as the left side of the window, and `more`; none without one."""
    left, _ = scene.case.mask.window or (None, None)
    first = scene.case.seq_q if left is None else left + more
    return (torch.arange(scene.case.seq_q) >= first)[None, None]


def _from_a_number(failing: list[tuple[Scene, Tensor]], output: str) -> Iterator[tuple[str, _Rule]]:
    """What lies behind a number of sequences, heads, rows, keys or channels that is the same on all cases, as of a grid with a limit."""
    names = {"batch": "sequences", "head_q": "query heads", "head_kv": "kv heads", "row": "rows", "key": "keys"}
    for axis, name in enumerate(output_spec(output).axes):
        first = {int(mask.movedim(axis, 0).flatten(1).any(1).long().argmax()) for _, mask in failing}
        if len(first) == 1 and (number := first.pop()):
            yield f"{names.get(name, 'channels')} from {number} on", partial(_from_number, axis=axis, first=number)


def _from_number(_scene: Scene, _output: str, shape: torch.Size, axis: int, first: int) -> Tensor:
    return (torch.arange(shape[axis]) >= first).view([-1 if n == axis else 1 for n in range(len(shape))])


def _channels(first: Callable[[Scene], int]) -> _Rule:
    return lambda scene, _output, shape: torch.arange(shape[-1]) >= first(scene)


def _lines(of: Callable[[Scene], Tensor]) -> _Rule:
    """Rows or keys, bool, broadcasts to `[B, heads, lines]`."""

    def rule(scene: Scene, output: str, shape: torch.Size) -> Tensor:
        found = of(scene)
        if found.shape[1] > 1 and "head_kv" in output_spec(output).axes:
            found = found.reshape(found.shape[0], -1, scene.group, found.shape[2]).all(2)
        return found.unsqueeze(-1) if len(shape) == 4 else found

    return rule


def _lost_of_packed_rows(scene: Scene, _output: str, shape: torch.Size, *, lists: bool) -> Tensor | None:
    """Pairs that quotients by both sizes never give, where one of them should be a remainder. None of a case without lists if `lists`."""
    case, selection = scene.case, scene.case.mask.selection
    if lists and selection is None:
        return None
    rows = selection.rows if lists and selection is not None else max(case.seq_q, 1)
    packed = torch.arange(rows * scene.group)
    made = torch.zeros(scene.group, rows, dtype=torch.bool)
    made[packed // rows, packed // scene.group] = True
    heads, queries = torch.arange(case.heads_q) % scene.group, torch.arange(case.seq_q) % rows
    found = ~made[heads[:, None], queries[None, :]][None]
    return found.unsqueeze(-1) if len(shape) == 4 else found


def _last(size: int) -> Tensor:
    return (torch.arange(size) == size - 1)[None, None]


def _unseen(scene: Scene) -> Tensor:
    see = scene.inputs.visible
    inside = (scene.at.key < scene.at.key_limit)[:, None]
    if see is None:
        return ~inside if scene.case.seq_q else torch.ones_like(inside)
    seen: Tensor = see.expand(*scene.case.shape_q[:3], scene.case.seq_k).any(2)
    return ~seen


def _rows_of_keys(scene: Scene) -> Tensor:
    """Declared rows of the sequence of each key, `[B, Sk]`."""
    at = scene.at
    found = torch.zeros_like(at.key)
    for b in range(at.key.shape[0]):
        rows = dict(zip(at.row_sequence[b].tolist(), at.rows[b].tolist(), strict=True))
        found[b] = torch.tensor([rows.get(n, 0) for n in at.key_sequence[b].tolist()], dtype=found.dtype)
    return found
