"""Functions of text, as if they had run, and what edits make of them."""

from __future__ import annotations

import ast
from pathlib import Path

from flashverify.repair.candidates import sites
from flashverify.repair.functions import Ran
from flashverify.source_text import Source

KINDS = {
    **dict.fromkeys(("seq_q", "seq_k", "start", "stop", "length", "group", "heads", "head", "left", "BLOCK"), "int"),
    **dict.fromkeys(("p.stride_m", "p.stride_n"), "int"),
    **dict.fromkeys(("scale", "log2e", "cap"), "float"),
    **dict.fromkeys(("causal", "windowed"), "bool"),
    **dict.fromkeys(("top", "new", "total", "lse", "decay"), "float[16]"),
    "row": "int[16]",
    "key": "int[32]",
    "at": "int[32]",
    "see": "bool[16, 32]",
    "s": "float[16, 32]",
    "w": "float[16, 32]",
    "q": "float[16, 64]",
    "k": "float[32, 64]",
    "v": "float[32, 64]",
    "acc": "float[16, 64]",
    "o": "float[16, 64]",
    "dq": "float[16, 64]",
    "dk": "float[32, 64]",
    "dv": "float[32, 64]",
}
"""Of what kind names are."""


def ran_of(text: str, *, kernel: bool = False, file: Path = Path("kernel.py")) -> Ran:
    """The last function of a text, all of whose lines ran."""
    source = Source(text)
    node = [each for each in ast.walk(source.tree) if isinstance(each, ast.FunctionDef)][-1]
    lines = set(range(1, text.count("\n") + 2))
    return Ran(file, source, node, source.tree.body[-1], lines, dict(KINDS), kernel=object() if kernel else None)


def function(*lines: str) -> str:
    """The text of a function of everything that has a kind."""
    names = ", ".join(dict.fromkeys(name.partition(".")[0] for name in KINDS))
    return f"def function({names}):\n" + "".join(f"    {line}\n" for line in "\n".join(lines).split("\n"))


def edited_texts(ran: Ran) -> list[str]:
    """The whole text with each of the edits."""
    text = ran.source.text
    found = [each.edit for site in sites(ran) for each in site.candidates]
    return [text[: edit.start] + edit.text + text[edit.end :] for edit in found]


def dumped(text: str) -> str:
    """What a text means."""
    return ast.dump(ast.parse(text))
