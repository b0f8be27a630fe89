"""The inferred declaration: as objects, as fields beside the declared ones, and as code to paste."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.case.supports import Supports
from flashverify.describe.fields import default_texts, value_text
from flashverify.errors import UsageError
from flashverify.probing.record import Field
from flashverify.subjects.interface import Contract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.probing.notebook import Notebook

__all__ = ["code_of", "fields_of", "inferred_supports", "plain_supports"]

_CLASSES: dict[str, Any] = {"supports": Supports, "contract": Contract}
_SHOWN = {"supports": "Supports", "contract": "Contract", "form": "Form"}


def inferred_supports(notebook: Notebook) -> Supports:
    """`Supports` as it was inferred; a field that contradicts another is left out and noted."""
    fields = {name: value for (of, name), value in notebook.values.items() if of == "supports"}
    fields.setdefault("dtypes", (str(notebook.base["dtype"]),))
    if notebook.refusals:
        fields["also"] = _also(notebook)
    try:
        return Supports(**fields)
    except UsageError as error:
        notebook.notes.append(f"the inferred fields contradict each other: {error}")
        kept = {name: fields[name] for name in ("dtypes", "backward", "masks") if name in fields}
        return Supports(**kept)


def _also(notebook: Notebook) -> Any:
    def also(case: Case) -> str | None:
        return next((each.reason for each in notebook.refusals if each.refuses(case)), None)

    return also


def plain_supports(supports: Supports) -> dict[str, Any]:
    """The fields of `Supports` that JSON can hold."""
    found = {}
    for field in dataclasses.fields(supports):
        value = getattr(supports, field.name)
        if field.name not in ("also", "launch", "launch_configs") and value != field.default:
            found[field.name] = list(value) if isinstance(value, tuple | range) else value
    return found


def fields_of(notebook: Notebook) -> tuple[Field, ...]:
    """Every field that is inferred or differs from its default as declared, those of `Supports` first."""
    return tuple(_fields(notebook))


def _fields(notebook: Notebook) -> Iterator[Field]:
    from flashverify.numerics.form import Form

    for of, kind in (*_CLASSES.items(), ("form", Form)):
        defaults, declared = default_texts(kind), notebook.loaded.declared[of]
        for name, default in defaults.items():
            known = (of, name) in notebook.values
            value = value_text(notebook.values[of, name]) if known else ""
            if name == "also" and notebook.refusals:
                known, value = True, "; ".join(each.code for each in notebook.refusals)
            if declared[name] == default and (not known or value == default):
                continue
            held = (of, name) in notebook.confirmed and not (of == "form" and notebook.form_refuted)
            verdict = ("same" if value == declared[name] else "differs") if known else "held" if held else "not asked"
            yield Field(
                of=of,
                name=name,
                inferred=value,
                declared=declared[name],
                stated=notebook.stated(of),
                why=notebook.why.get((of, name), ""),
                verdict=verdict,
            )


def code_of(notebook: Notebook) -> str:
    """Python code that declares what was inferred; what loosens a bound is no part of it."""
    parts = {of: list(_arguments(notebook, of)) for of in _SHOWN}
    names = [_SHOWN[of] for of, arguments in parts.items() if arguments]
    if len(notebook.values.get(("supports", "precisions"), ())) > 1 and "Form" not in names:
        names.append("Form")
    lines = [f"from flashverify import {', '.join(sorted([*names, 'subject']))}", "", "", "@subject("]
    for of, arguments in parts.items():
        if of == "form" and len(notebook.values.get(("supports", "precisions"), ())) > 1:
            inner = ", ".join([*arguments, "dot=case.precision"])
            lines.append(f"    form=lambda case: Form({inner}),")
        elif arguments:
            lines += [f"    {of}={_SHOWN[of]}(", *(f"        {argument}," for argument in arguments), "    ),"]
    for promise in notebook.held:
        lines.append(f"    # Contract({promise}) held in every repeat; only you can promise it.")
    for suspect in notebook.suspects:
        if suspect.declare:
            lines.append(f"    # {suspect.declare} would declare what looks like a defect: {suspect.what}.")
    name = notebook.loaded.name if notebook.loaded.name.isidentifier() else "mine"
    return "\n".join([*lines, ")", f"def {name}(p):", "    ..."])


def _arguments(notebook: Notebook, of: str) -> Iterator[str]:
    defaults: dict[str, Any] = {}
    if of in _CLASSES:
        defaults = {field.name: field.default for field in dataclasses.fields(_CLASSES[of])}
    for (kind, name), value in sorted(notebook.values.items(), key=lambda item: _order(item[0])):
        if kind == of and (of, name) not in notebook.disputed and (name not in defaults or defaults[name] != value):
            text = f"frozenset({value_text(value)})" if isinstance(value, frozenset) else value_text(value)
            yield f"{name}={_number(text)}"
    if of == "supports" and notebook.refusals:
        rules = " or ".join(f"({each.code})" for each in notebook.refusals)
        reason = ", ".join(each.reason for each in notebook.refusals)
        yield f"also=lambda case: {reason!r} if {rules} else None"


def _number(text: str) -> str:
    """A float that Python has no literal of."""
    return f'float("{text}")' if text in ("inf", "-inf", "nan") else text


def _order(key: tuple[str, str]) -> tuple[str, int]:
    of, name = key
    names = [field.name for field in dataclasses.fields(_CLASSES[of])] if of in _CLASSES else []
    return of, names.index(name) if name in names else len(names)
