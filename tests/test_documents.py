"""The documents: every link leads somewhere, and every file of the repository that they name is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("docs", "tests", "benchmarks", "examples", "oracles", "reports", ".github")
# reports/kill_matrix.md names files of the suites that it compares with.
FOREIGN = {"tests/test_flash_attn.py"}
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(path for name in FOLDERS for path in (ROOT / name).rglob("*.md")),
    ]
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"`((?:flashverify|tests|docs|benchmarks|examples|kernels|oracles|reports)/[\w./-]+\.\w+)`")


def anchor(heading):
    """The anchor of a heading, as forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(path):
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)}


def broken(document):
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in LINK.findall(text):
        if target.startswith("http"):
            continue
        path, _, place = target.partition("#")
        found = document.parent / path if path else document
        if not found.exists() or (place and place not in anchors(found)):
            yield target
    for name in FILE.findall(text):
        if name not in FOREIGN and not (ROOT / name).exists() and not (document.parent / name).exists():
            yield name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_files_exist(document):
    assert list(broken(document)) == []


def test_a_broken_link_and_a_missing_file_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One\n[here](#one) [there](#two) [away](none.md) `flashverify/none.py` `flashverify/errors.py`\n")

    assert list(broken(page)) == ["#two", "none.md", "flashverify/none.py"]
