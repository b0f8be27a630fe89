"""The one text form of a case: `key=value` words in a fixed order, defaults left out.

    fv1 batch=2 heads_q=4 heads_kv=2 seq_q=17 seq_k=33 dim_qk=64 dim_v=64 causal=bottom-right klen=5,33 regime=ties seed=7

Parsing accepts any order; formatting always gives the same line. Floats that no short decimal names exactly are written
as hex floats, so a case survives the round trip bit for bit.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashverify.case.case import Case, Edit, Grad, Logits, Storage, Values
from flashverify.case.codec import float_text, ints, ints_text, parse_float, yes_or_no, yes_or_no_text
from flashverify.case.masks.mask import PARTS, Mask
from flashverify.case.modifiers.logits import MODIFIERS
from flashverify.case.quantised.quantised import format_quantised, parse_quantised
from flashverify.errors import CaseTextError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["VERSION", "format_case", "parse_case"]

VERSION = "fv1"
_GROUPED = re.compile(r"(?<![A-Za-z0-9_])[0-9]+_")
"""A number with an underscore, as `1_6`, which Python takes for 16; names as `block_m` have letters before theirs."""
_REMEMBERED = 4096
"""Words, and parts of cases, that are kept as they were parsed: the cases of a run share most of theirs."""
_SHORT = 200
"""Characters that these may have; a long tree or bitmap is no other case's."""
_SECTIONS = {"mask": Mask, "logits": Logits, "values": Values, "storage": Storage, "grad": Grad}


@dataclass(frozen=True, slots=True)
class _Axis:
    """One word of the text form: its key, the section and field it sets, and the codec of its value."""

    key: str
    section: str  # "" is the case itself
    field: str
    parse: Callable[[str], Any]
    format: Callable[[Any], str]


def format_case(case: Case) -> str:
    """The text form of `case`: one line, the same for equal cases."""
    words = [VERSION]
    for axis, default in _axes_with_defaults():
        value = _get(case, axis)
        if value is not default and (value != default or _differs_in_sign(value, default)):
            words.append(f"{axis.key}={axis.format(value)}")
    return " ".join(words)


def parse_case(text: str) -> Case:
    """The case that `text` names.

    Args:
        text: `fv1` and words `key=value` in any order; `str(case)` gives it back.

    Returns:
        The case; axes that the text does not name have their defaults.

    Raises:
        CaseTextError: a word is unknown, given twice or malformed, or the values contradict each other; the message
            names the word and what is accepted.
    """
    words = text.split()
    if not words or words[0] != VERSION:
        found = words[0] if words else ""
        raise CaseTextError(f"a case starts with {VERSION!r}, found {found[:40]!r}")
    sections: dict[str, list[str]] = {"": []}
    for word in words[1:]:
        sections.setdefault(_axis(word).section, []).append(word)
    try:
        parts = {name: _section(name, tuple(sections.get(name, ()))) for name in _SECTIONS}
        return Case(**_values(tuple(sections[""])), **parts)
    except CaseTextError:
        raise
    except UsageError as error:
        raise CaseTextError(str(error)) from error


def _axis(word: str) -> _Axis:
    """What a word sets."""
    key, separator, _ = word.partition("=")
    axes = _axes_by_key()
    if not separator or key not in axes:
        raise CaseTextError(f"unknown word {word[:80]!r} in a case; accepted keys: {', '.join(axes)}")
    return axes[key]


def _section(name: str, words: tuple[str, ...]) -> Any:
    """A part of a case; cases share it, because nothing changes one that is made."""
    return (_known_section if sum(map(len, words)) <= _SHORT else _new_section)(name, words)


def _new_section(name: str, words: tuple[str, ...]) -> Any:
    return _SECTIONS[name](**_values(words))


_known_section = functools.lru_cache(maxsize=_REMEMBERED)(_new_section)


def _values(words: tuple[str, ...]) -> dict[str, Any]:
    """What words of one section set, by field."""
    found: dict[str, Any] = {}
    for word in words:
        field, value = (_known_value if len(word) <= _SHORT else _new_value)(word)
        if field in found:
            raise CaseTextError(f"{word.partition('=')[0]} is given twice in a case")
        found[field] = value
    return found


def _new_value(word: str) -> tuple[str, Any]:
    """The field that a word sets, and its value."""
    axis, (key, _, value) = _axis(word), word.partition("=")
    if not value.isascii() or _GROUPED.search(value):
        raise CaseTextError(f"{key}={value[:80]!r} is not accepted: ASCII, digits without underscores between them")
    try:
        return axis.field, axis.parse(value)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise CaseTextError(f"{key}={value[:80]!r} is not accepted: {_accepted(error)}") from error


def _accepted(error: Exception) -> str:
    """What a value of a word may be, in place of what Python says of a number that is none."""
    said = str(error)
    if said.startswith("invalid literal for int()"):
        return "an integer, or integers"
    return "a number" if said.startswith("could not convert string to float") else said


_known_value = functools.lru_cache(maxsize=_REMEMBERED)(_new_value)


@functools.cache
def _axes_by_key() -> dict[str, _Axis]:
    return {axis.key: axis for axis in _axes()}


@functools.cache
def _axes_with_defaults() -> tuple[tuple[_Axis, Any], ...]:
    default = Case()
    return tuple((axis, _get(default, axis)) for axis in _axes())


def _get(case: Case, axis: _Axis) -> Any:
    return getattr(getattr(case, axis.section) if axis.section else case, axis.field)


def _differs_in_sign(value: Any, default: Any) -> bool:
    """True where -0.0 stands against a default of 0.0, which compare equal."""
    both = isinstance(value, float) and isinstance(default, float)
    return both and value == default and math.copysign(1, value) != math.copysign(1, default)


def _edit_value_text(value: float) -> str:
    return str(value) if not math.isfinite(value) else float_text(value)


def _edits(text: str) -> tuple[Edit, ...]:
    def one(part: str) -> Edit:
        tensor, index, value = part.split(":")
        b, h, s, d = ints(index)
        return Edit(tensor, (b, h, s, d), parse_float(value))

    return tuple(one(part) for part in text.split(";"))


def _edits_text(edits: tuple[Edit, ...]) -> str:
    return ";".join(f"{e.tensor}:{ints_text(e.index)}:{_edit_value_text(e.value)}" for e in edits)


def _launch(text: str) -> tuple[tuple[str, int], ...]:
    pairs = (part.split(":") for part in text.split(","))
    return tuple(sorted((name, int(value)) for name, value in pairs))


@functools.cache
def _axes() -> tuple[_Axis, ...]:
    return tuple(_list_axes())


def _list_axes() -> Iterator[_Axis]:
    for name in ("batch", "heads_q", "heads_kv", "seq_q", "seq_k", "dim_qk", "dim_v"):
        yield _Axis(name, "", name, int, str)
    yield _Axis("dtype", "", "dtype", str, str)
    yield _Axis("precision", "", "precision", str, str)
    yield _Axis("scale", "", "scale", parse_float, float_text)
    for part in PARTS:
        yield _Axis(part.word, "mask", part.name, part.parse, part.format)
    for modifier in MODIFIERS:
        yield _Axis(modifier.name, modifier.section, modifier.name, modifier.parse, modifier.format)
    yield _Axis("regime", "values", "regime", str, str)
    yield _Axis("seed", "values", "seed", int, str)
    yield _Axis("edits", "values", "edits", _edits, _edits_text)
    yield _Axis("layout", "storage", "layout", str, str)
    yield _Axis("gap", "storage", "gap", int, str)
    yield _Axis("offset", "storage", "offset", int, str)
    yield _Axis("expand", "storage", "expand", yes_or_no, yes_or_no_text)
    yield _Axis("padding", "storage", "padding", str, str)
    yield _Axis("page_size", "storage", "page_size", int, str)
    yield _Axis("kept_pages", "storage", "kept_pages", yes_or_no, yes_or_no_text)
    yield _Axis("strided", "storage", "strided", yes_or_no, yes_or_no_text)
    yield _Axis("transposed", "storage", "transposed", yes_or_no, yes_or_no_text)
    yield _Axis("kv", "storage", "kv", str, str)
    yield _Axis("quantised", "", "quantised", parse_quantised, format_quantised)
    yield _Axis("do", "grad", "do", str, str)
    yield _Axis("dlse", "grad", "dlse", yes_or_no, yes_or_no_text)
    yield _Axis("backward", "grad", "backward", yes_or_no, yes_or_no_text)
    yield _Axis("launch", "", "launch", _launch, lambda pairs: ",".join(f"{n}:{v}" for n, v in pairs))
