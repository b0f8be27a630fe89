"""A reader of the part of YAML that the example workflows use: block mappings and lists, plain and quoted scalars, flow lists.

Everything else is refused, so that a workflow cannot pass by being misread.
"""

import re

_KEY = re.compile(r"""(?P<key>[\w.-]+(?: [\w.-]+)*):(?:\s+(?P<value>\S.*))?$""")
_REFUSED = re.compile(r"^[&*!|>{%@`]|\t|: .*: |^[^\"'].* #")


def parse(text):
    """The document as dicts, lists and scalars."""
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        assert "\t" not in line, f"line {number}: a tab"
        if line.strip() and not line.lstrip().startswith("#"):
            indent = len(line) - len(line.lstrip(" "))
            lines.append((number, indent, line.strip()))
    value, rest = _block(lines, 0)
    assert not rest, f"line {rest[0][0]}: unexpected indentation"
    return value


def _block(lines, indent):
    assert lines[0][1] == indent, f"line {lines[0][0]}: indented by {lines[0][1]}, expected {indent}"
    return _list(lines, indent) if lines[0][2].startswith("- ") else _mapping(lines, indent)


def _list(lines, indent):
    found = []
    while lines and lines[0][1] == indent and lines[0][2].startswith("- "):
        number, _, text = lines[0]
        inner = text[2:]
        if _KEY.match(inner):
            value, lines = _mapping([(number, indent + 2, inner), *lines[1:]], indent + 2)
        else:
            value, lines = _scalar(inner, number), lines[1:]
        found.append(value)
    return found, lines


def _mapping(lines, indent):
    found = {}
    while lines and lines[0][1] == indent and not lines[0][2].startswith("- "):
        number, _, text = lines[0]
        match = _KEY.match(text)
        assert match, f"line {number}: {text!r} is no key"
        key, lines = match["key"], lines[1:]
        assert key not in found, f"line {number}: {key!r} stands twice"
        if match["value"] is not None:
            found[key] = _scalar(match["value"], number)
        elif lines and lines[0][1] > indent:
            found[key], lines = _block(lines, lines[0][1])
        else:
            found[key] = None
    return found, lines


def _scalar(text, number):
    assert not _REFUSED.search(text), f"line {number}: {text!r} is not in the part of YAML that is read"
    if text[0] in "\"'":
        assert (text[-1], text.count(text[0])) == (text[0], 2), f"line {number}: {text!r} is not closed"
        return text[1:-1]
    if text[0] == "[":
        assert text[-1] == "]", f"line {number}: {text!r} is not closed"
        return [_scalar(each.strip(), number) for each in text[1:-1].split(",")]
    return int(text) if text.isdigit() else text
