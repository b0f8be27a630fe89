"""Writes docs/reference: one page per public object from its docstring, and one of the command line from its options.

python docs/generate_reference.py          # writes the pages
python docs/generate_reference.py --check  # exits 1 where a page is not current

`tests/api/test_reference_pages.py` holds the pages current.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import click

import flashverify
from flashverify.cli import main as command_line

FOLDER = Path(__file__).parent / "reference"
_NOTE = "<!-- Written by docs/generate_reference.py from docstrings; edit those. -->\n"
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):$")
_ENTRY = re.compile(r"^ {4}(\w[\w., ]*): (.*)$")
_TITLES = {
    "Args": "Arguments",
    "Attributes": "Attributes",
    "Returns": "Returns",
    "Yields": "Yields",
    "Raises": "Raises",
}
_GROUPS = ("Functions", "Classes", "Errors")


def pages() -> dict[str, str]:
    """Every page by its file name."""
    names = {name: getattr(flashverify, name) for name in flashverify.__all__}
    found = {page_name(value): _page(name, value) for name, value in names.items()}
    return found | {"cli.md": _command_page(), "index.md": _index(names)}


def page_name(value: Any) -> str:
    """The file of an object; on file systems that ignore case `subject` and `Subject` need two names."""
    prefix = {"Functions": "", "Classes": "class-", "Errors": "error-"}[_group(value)]
    return f"{prefix}{value.__name__}.md"


def _group(value: Any) -> str:
    if not inspect.isclass(value):
        return "Functions"
    return "Errors" if issubclass(value, BaseException) else "Classes"


def _index(names: dict[str, Any]) -> str:
    lines = [
        _NOTE,
        "# Reference\n",
        "`import flashverify` gives these names, and `flashverify.__version__`. The command line: [cli](cli.md).",
    ]
    for group in _GROUPS:
        lines += ["", f"## {group}"]
        for name, value in names.items():
            if _group(value) == group:
                lines.append(f"- [`{name}`]({page_name(value)}): {_first(value)}")
    return "\n".join(lines) + "\n"


def _first(value: Any) -> str:
    """The first sentence of a docstring."""
    paragraph = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", paragraph)[0]


def _page(name: str, value: Any) -> str:
    parts = [_NOTE, f"# {name}\n", f"```python\n{_declaration(name, value)}\n```\n", _text(inspect.getdoc(value) or "")]
    if _group(value) == "Functions" and "options:" in (value.__doc__ or ""):
        parts.append(f"The options are those of [`AttentionOptions`]({page_name(flashverify.AttentionOptions)}).\n")
    for member, function in _members(value):
        parts += [f"## {member}\n", _text(inspect.getdoc(function) or "")]
    return "\n".join(parts).rstrip() + "\n"


def _declaration(name: str, value: Any) -> str:
    """The object as one would write its head, a parameter or field a line."""
    if not inspect.isclass(value):
        signature = inspect.signature(value)
        lines = []
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY and "    *," not in lines:
                lines.append("    *,")
            lines.append(f"    {_parameter(parameter)},")
        body = "\n".join(lines)
        returned = signature.return_annotation
        return f"from flashverify import {name}\n\n{name}(\n{body}\n) -> {returned}"
    base = value.__mro__[1]
    shown = base not in (object, dict) and not _internal(base)
    head = f"from flashverify import {name}\n\nclass {name}" + (f"({base.__name__})" if shown else "")
    fields = [f"    {text}" for text in _fields(value)]
    return head + (":\n" + "\n".join(fields) if fields else "")


def _parameter(parameter: inspect.Parameter) -> str:
    """A parameter with its type, which is text already, and its default."""
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    kind = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
    return f"{parameter.name}{kind}{default}"


def _fields(value: Any) -> list[str]:
    """Fields with their types and defaults."""
    if issubclass(value, enum.Enum):
        return [f"{member.name} = {str(member.value)!r}" for member in value]
    if value is flashverify.AttentionOptions:
        parameters = inspect.signature(flashverify.oracle).parameters
        return [_parameter(parameters[name]) for name in value.__annotations__]
    if dataclasses.is_dataclass(value):
        return [f"{field.name}: {_type(field.type)}{_default(field)}" for field in dataclasses.fields(value)]
    if hasattr(value, "__struct_fields__"):
        defaults = value.__struct_defaults__
        required = len(value.__struct_fields__) - len(defaults)
        given = ["" for _ in range(required)] + [f" = {default!r}" for default in defaults]
        kinds = value.__annotations__
        return [f"{name}: {kinds[name]}{text}" for name, text in zip(value.__struct_fields__, given, strict=True)]
    return []


def _type(annotation: Any) -> str:
    """A type as its module writes it, whether or not the module keeps annotations as text."""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f" = {field.default!r}" if not isinstance(field.default, frozenset) else f" = {_sorted(field.default)}"
    if field.default_factory is not dataclasses.MISSING:
        return f" = {field.default_factory.__name__}()"
    return ""


def _sorted(values: frozenset[Any]) -> str:
    return "frozenset({" + ", ".join(map(repr, sorted(values))) + "})"


def _members(value: Any) -> list[tuple[str, Any]]:
    """Public methods and properties that a class or an internal base of it defines, in the order of the source."""
    if not inspect.isclass(value) or issubclass(value, (BaseException, enum.Enum)):
        return []
    found = []
    defined = [item for owner in (value, *filter(_internal, value.__mro__[1:])) for item in vars(owner).items()]
    for name, member in defined:
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        if isinstance(member, property):
            found.append((f"`{name}`", function))
            continue
        signature = inspect.signature(function)
        taken = ", ".join(_parameter(p) for p in signature.parameters.values() if p.name not in ("self", "cls"))
        found.append((f"`{name}({taken}) -> {signature.return_annotation}`", function))
    return found


def _internal(owner: type) -> bool:
    """Whether a class is flashverify's own and has no page."""
    return owner.__module__.startswith("flashverify.") and owner.__name__ not in flashverify.__all__


def _text(docstring: str) -> str:
    """A Google docstring as Markdown: paragraphs, examples as code, sections as lists."""
    lines, section, code = [], "", False
    for line in docstring.splitlines():
        match = _SECTION.match(line)
        if match:
            section = match[1]
            lines += ["```", ""] if code else []
            lines += [f"**{_TITLES[section]}**", ""]
            code = False
        elif section:
            lines.append(_listed(line, section))
        else:
            inside = line.startswith("    ") or (code and not line.strip())
            if inside != code:
                lines += ["```python"] if inside else ["```", ""]
            lines.append(line.removeprefix("    ") if inside else line)
            code = inside
    if code:
        lines.append("```")
    text = "\n".join(lines)
    parts = re.split(r"(\n```python\n.*?\n*```\n)", text, flags=re.DOTALL)
    tidy = [re.sub(r"\n*```\n$", "\n```\n", x) if n % 2 else re.sub(r"\n{3,}", "\n\n", x) for n, x in enumerate(parts)]
    return "".join(tidy) + "\n"


def _listed(line: str, section: str) -> str:
    """A line of a section as part of a list: an entry, or more of the one before."""
    entry = _ENTRY.match(line)
    if entry and section not in ("Returns", "Yields"):
        return f"- `{entry[1]}`: {entry[2]}"
    return line.strip() if section in ("Returns", "Yields") else f"  {line.strip()}" if line.strip() else ""


def _command_page() -> str:
    parts = [
        _NOTE,
        "# Command line\n",
        f"{_sentences(command_line.help)}\n",
        f"{_sentences(command_line.epilog)}\n",
    ]
    for name, command in sorted(command_line.commands.items()):
        context = click.Context(command, info_name=f"flashverify {name}")
        usage = " ".join(command.collect_usage_pieces(context))
        parts += [f"## {name}\n", f"`flashverify {name} {usage}`\n", f"{_sentences(command.help)}\n"]
        options = [item for item in command.params if isinstance(item, click.Option)]
        records = [record for item in options if (record := item.get_help_record(context)) is not None]
        parts += ["\n".join(f"- `{option}`: {' '.join(text.split())}" for option, text in records), ""]
    return "\n".join(parts).rstrip() + "\n"


def _sentences(text: str | None) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (text or "").strip().split("\n\n"))


def main(arguments: list[str]) -> int:
    """Writes the pages, or says which are not current."""
    wanted = pages()
    if "--check" in arguments:
        stale = sorted(name for name, text in wanted.items() if not _same(FOLDER / name, text))
        stale += sorted(path.name for path in FOLDER.glob("*") if path.name not in wanted)
        print("\n".join(f"docs/reference/{name} is not current: run docs/generate_reference.py" for name in stale))
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.md"):
        path.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
