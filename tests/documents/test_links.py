"""Every link of the documents leads somewhere, every file of the repository that they name is there, and each is linked."""

import re

import pytest

from tests.documents.blocks import PAGES, ROOT, prose

# reports/kill_matrix.md names files of the suites that it compares with.
FOREIGN = {"tests/test_flash_attn.py"}
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"`((?:flashverify|tests|docs|benchmarks|examples|kernels|oracles|reports)/[\w./-]+\.\w+)`")


def anchor(heading):
    """The anchor of a heading, as forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(path):
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)}


def broken(document):
    text = prose(document)
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


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_files_exist(document):
    assert list(broken(document)) == []


def test_a_broken_link_and_a_missing_file_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One\n[here](#one) [there](#two) [away](none.md) `flashverify/none.py` `flashverify/errors.py`\n")

    assert list(broken(page)) == ["#two", "none.md", "flashverify/none.py"]


def linked(start):
    """The pages that links lead to from a page, over any number of pages."""
    found, waiting = set(), [start]
    while waiting:
        page = waiting.pop()
        if page not in found and page.suffix == ".md" and page.exists():
            found.add(page)
            waiting += [
                (page.parent / x.partition("#")[0]).resolve() for x in LINK.findall(prose(page)) if "://" not in x
            ]
    return found


def test_every_document_is_reached_from_the_readme():
    reached = linked(ROOT / "README.md")

    assert [str(p.relative_to(ROOT)) for p in PAGES if p not in reached and ".github" not in p.parts] == []


def test_a_page_without_a_link_is_found(tmp_path):
    (tmp_path / "one.md").write_text("[two](two.md#here)\n```\n[three](three.md)\n```\n")
    for name in ("two.md", "three.md"):
        (tmp_path / name).write_text("")

    assert linked(tmp_path / "one.md") == {tmp_path / "one.md", tmp_path / "two.md"}
