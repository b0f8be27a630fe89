"""Pages of the repository and their fenced blocks."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "tests", "benchmarks", "examples", "oracles", "reports", ".github")
PAGES = sorted([*ROOT.glob("*.md"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))])
FENCE = re.compile(r"^(?P<margin> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=margin)```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
GENERATED = ROOT / "docs/reference"
"""Its blocks are declarations and no programs; `docs/generate_reference.py --check` holds them current."""


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    def __str__(self):
        return f"{self.page.name}:{self.line}"


def blocks(page):
    """The fenced blocks of a page, without the margin that a list gives them."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, m.start()) + 1, m["language"], textwrap.dedent(m["text"]))
        for m in FENCE.finditer(text)
    ]


def all_blocks(language):
    """The blocks of a language on every page that is written by hand."""
    return [
        block for page in PAGES if GENERATED not in page.parents for block in blocks(page) if block.language == language
    ]


def prose(page):
    """The text of a page without its blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))
