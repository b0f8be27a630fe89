"""Mutants of the bundled kernels that operators generate, instead of people.

Every operator is applied wherever it fits. The bank is a selection of them: of each function the more, the more there are,
but far fewer than in proportion, and its operators in turn. What is selected of a function depends on that function alone.
Narrowed integers are not selected: no case is large enough to show them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections import defaultdict
from functools import cache
from itertools import zip_longest
from pathlib import Path

from flashverify.mutants.mutant import Mutant
from flashverify.mutants.operators.memory import MEMORY, WIDTH
from flashverify.mutants.operators.numbers import NUMBERS
from flashverify.mutants.operators.scope import SCOPE, Scope, needs_of, subject_of
from flashverify.mutants.operators.structure import STRUCTURE
from flashverify.mutants.operators.walk import Change, Source, changes

__all__ = ["generated", "mutants_of"]

OPERATORS = (*NUMBERS, *MEMORY, *STRUCTURE)
_SHARE, _POWER = 0.6, 0.7
"""Of n mutants of a function about _SHARE * n^_POWER are selected."""


@cache
def generated(*, everything: bool = False) -> tuple[Mutant, ...]:
    """The generated mutants, in the order of the files and functions.

    Args:
        everything: all that the operators give, instead of the selection.
    """
    spec = importlib.util.find_spec("flashverify_kernels")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(spec.submodule_search_locations[0])
    return tuple(
        mutant
        for scope in SCOPE
        for mutant in mutants_of((root / scope.file).read_text(encoding="utf-8"), scope, everything=everything)
    )


def mutants_of(text: str, scope: Scope, *, everything: bool = False) -> tuple[Mutant, ...]:
    """The mutants of one file.

    Args:
        text: its contents.
        scope: which functions are mutated, and what reaches them.
        everything: all of them instead of the selection.
    """
    source = Source(text)
    by_function: dict[str, list[tuple[str, Mutant]]] = defaultdict(list)
    numbers: dict[tuple[str, str], int] = defaultdict(int)
    places: dict[str, int] = defaultdict(int)
    for change in changes(source, OPERATORS):
        if change.function in scope.never or (scope.only and change.function not in scope.only):
            continue
        operator = change.edit.operator
        numbers[change.function, operator] += 1
        name = _name(scope.file, change.function, operator, numbers[change.function, operator])
        site = f"{_stem(scope.file)}.{change.function}: {_marked(text, change)}"
        places[site] += 1
        site += f" [{places[site]}]" * (places[site] > 1)
        by_function[change.function].append((operator, _mutant(name, site, source, change, scope)))
    if everything:
        return tuple(mutant for found in by_function.values() for _, mutant in found)
    return tuple(mutant for found in by_function.values() for mutant in _selected(found))


def _name(file: str, function: str, operator: str, number: int) -> str:
    return f"{_stem(file)}_{function.strip('_').lower()}_{operator}_{number}"


def _stem(file: str) -> str:
    path = Path(file)
    return path.stem if path.parent.name == "device" else f"host_{path.stem}"


def _marked(text: str, change: Change) -> str:
    """The lines of an edit on one line, with the edit marked and without a comment behind them."""
    edit = change.edit
    start, end = text.rfind("\n", 0, edit.start) + 1, _line_end(text, edit.end)
    rest, _, _ = text[edit.end : end].partition("  #")
    marked = f"{text[start : edit.start]}{{{text[edit.start : edit.end]} -> {edit.text}}}{rest}"
    return " ".join(marked.split())


def _mutant(name: str, site: str, source: Source, change: Change, scope: Scope) -> Mutant:
    before, after = _snippet(source.text, change)
    return Mutant(
        name=name,
        file=scope.file,
        before=before,
        after=after,
        outputs=(),
        modelled_on=f"{change.edit.operator}: {change.edit.words}",
        subject=subject_of(scope, change),
        needs=needs_of(scope, change),
        site=site,
    )


def _snippet(text: str, change: Change) -> tuple[str, str]:
    """The whole lines of an edit, and as many before and after as make them unique, without and with the edit."""
    edit = change.edit
    start, end = text.rfind("\n", 0, edit.start) + 1, _line_end(text, edit.end)
    while text.find(text[start:end]) != start or text.find(text[start:end], start + 1) != -1:
        if start > 0:
            start = text.rfind("\n", 0, start - 1) + 1
        end = _line_end(text, end + 1)
    return text[start:end], text[start : edit.start] + edit.text + text[edit.end : end]


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _selected(found: list[tuple[str, Mutant]]) -> list[Mutant]:
    """About _SHARE * n^_POWER of n mutants: the operators in turn, each by the hash of the name; in the order of the source."""
    queues: dict[str, list[Mutant]] = defaultdict(list)
    for operator, mutant in found:
        if operator != WIDTH:
            queues[operator].append(mutant)
    ordered = sorted(queues, key=_hash)
    turns = zip_longest(*(sorted(queues[name], key=lambda m: _hash(m.name)) for name in ordered))
    taken = [mutant for turn in turns for mutant in turn if mutant is not None]
    kept = {mutant.name for mutant in taken[: math.ceil(_SHARE * len(found) ** _POWER)]}
    return [mutant for _, mutant in found if mutant.name in kept]


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()
