"""The fixed cases: the matrix of `flashverify run`, and the list on which throughput is quoted.

The matrix is a table of texts. Each entry of `matrix_table` is about one axis; the axes that it leaves open take the next value
of a rotation, so that every axis meets many values of the others (periods are coprime). Where the combination contradicts
itself or the subject does not support it, fewer axes are rotated; what is unsupported on its own is left out. Sizes that the subject
declares take the place of those of the entry (`fit`).
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import TYPE_CHECKING

from flashverify.case.space.fit import fitted
from flashverify.case.space.launch_entries import launch_entries
from flashverify.case.space.matrix_features import decodes, listed, paged
from flashverify.case.space.matrix_table import ROTATIONS, focus, large
from flashverify.case.text import VERSION, parse_case
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.case.case import Case
    from flashverify.case.supports import Supports

__all__ = ["benchmark_cases", "standard_matrix"]

_BEFORE_LONG = 24
"""Cases before those of long keys, which only a few defects need and which cost seconds."""
_SHAPE = "batch=1 heads_q=2 heads_kv=1 seq_q=33 seq_k=33 dim_qk=32 dim_v=32 seed=1"


def standard_matrix(supports: Supports, *, device: str) -> tuple[Case, ...]:
    """The cases of `flashverify run`, always the same ones in the same order.

    Args:
        supports: what the subject declares; no case is outside it.
        device: `cpu` (small cases, for interpreted kernels too) or `cuda` (those and larger ones).

    Raises:
        UsageError: the device is neither.
    """
    if device not in ("cpu", "cuda"):
        raise UsageError(f"device={device!r} is not accepted: 'cpu' or 'cuda'")
    generated = (
        *focus(),
        *(large() if device == "cuda" else ()),
        *paged(supports.page_sizes),
        *launch_entries(supports),
    )
    long = listed("long keys") if decodes(supports) or device == "cuda" else ()
    entries = (*generated, *listed("added"), *long)
    base, pages = _base(supports), ("", *(f"page_size={size}" for size in supports.page_sizes))
    found: dict[Case, Case] = {}
    early: dict[Case, None] = {}
    for number, entry in enumerate(entries):
        values, mask, *rest = (rotation[number % len(rotation)] for rotation in ROTATIONS)
        page = pages[number % len(pages)]
        whole = [] if entry in long else [(values, mask, *rest, page), (values, *rest, page)]
        for rotated in (*whole, (values, page), (page,), ()):
            case = _case([base, *rotated, entry, *_few_rows(supports, entry)])
            case = case and fitted(supports, case, number)
            if case is not None:
                found[case] = case
                early |= {case: None} if entry in long else {}
                break
    ordinary = [case for case in found.values() if case not in early]
    return (*ordinary[:_BEFORE_LONG], *early, *ordinary[_BEFORE_LONG:])


def _base(supports: Supports) -> str:
    """The plainest case of the subject."""
    dim = -(-32 // supports.dim_multiple) * supports.dim_multiple
    dim = min(dim, supports.dim_max // supports.dim_multiple * supports.dim_multiple)
    words = [_SHAPE, f"dim_qk={dim} dim_v={dim} dtype={supports.dtypes[0]}"]
    if not supports.gqa:
        words.append("heads_kv=2")
    if not supports.backward:
        words.append("backward=no")
    if "positive" not in supports.scales and "default" not in supports.scales:
        numbers = [float(scale).hex() for scale in supports.scales if not isinstance(scale, str)]
        words.append("scale=" + ("0" if "zero" in supports.scales else numbers[0] if numbers else "-0.125"))
    return " ".join(words)


def _few_rows(supports: Supports, entry: str) -> tuple[str, ...]:
    """What cuts the query rows of an entry to the most that the subject takes; a tree or packed sequences cannot be cut."""
    most = supports.max_seq_q
    rows = next((int(word.removeprefix("seq_q=")) for word in entry.split() if word.startswith("seq_q=")), most or 0)
    return () if most is None or rows < most else (f"seq_q={most}",)


def _case(words: Iterable[str]) -> Case | None:
    """The case of all words, the later ones winning; None where they contradict each other. No gradients, no axes of them."""
    chosen = dict(word.split("=", 1) for text in words for word in text.split())
    if chosen.get("backward") == "no":
        chosen.pop("do", None)
        chosen.pop("dlse", None)
    try:
        return parse_case(" ".join([VERSION, *(f"{key}={value}" for key, value in chosen.items())]))
    except UsageError:
        return None


@functools.cache
def benchmark_cases() -> tuple[Case, ...]:
    """The 200 cases on which throughput is quoted: drawn once from the CPU profile, and kept as text."""
    text = resources.files("flashverify.case.space").joinpath("benchmark_cases.txt").read_text(encoding="ascii")
    return tuple(parse_case(line) for line in text.splitlines())
