"""Of many parameters that tell the same of different things, the fast tests take some, and `make test` a few more."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def fast_one_in(n: int, values: Iterable[Any], *, kept: int = 1, ids: Any = None) -> list[Any]:
    """Parameters of which the first and every n-th one after it are not marked `slow`.

    Args:
        n: how many for one fast one.
        values: single values of a parameter, or parameters.
        kept: the first and every `kept`-th one after it are in `make test`; the others are marked `thorough`.
        ids: makes an id of a value; by default pytest does.
    """
    found = []
    for place, value in enumerate(values):
        marks = [pytest.mark.slow] if place % n else []
        if place % kept:
            marks = [pytest.mark.slow, pytest.mark.thorough]
        if hasattr(value, "marks"):  # what `pytest.param` made
            found.append(pytest.param(*value.values, id=value.id, marks=[*value.marks, *marks]))
        else:
            found.append(pytest.param(value, id=None if ids is None else ids(value), marks=marks))
    return found


def thorough_in(repeated: Collection[str], names: Iterable[str]) -> list[Any]:
    """Names as parameters, of which those in `repeated` are marked `thorough`: another one that is not shows the same of the code."""
    names = list(names)
    unknown = set(repeated) - set(names)
    if unknown:
        raise ValueError(f"no such parameters: {sorted(unknown)}")
    return [pytest.param(name, marks=[pytest.mark.thorough] * (name in repeated)) for name in names]
