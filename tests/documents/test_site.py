"""docs/build_site.py: what it makes of the pages, and that a dead link or a fetched script is an error."""

import importlib.util
import json

import pytest

from tests.documents.blocks import ROOT

SPEC = importlib.util.spec_from_file_location("build_site", ROOT / "docs/build_site.py")
site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site)
INDEX = """# Documents

## Readers
| document | answers |
|---|---|
| [../README.md](../README.md) | first |
| [two.md](two.md), [three.md](three.md) | second |

## Writers
| document | answers |
|---|---|
| [../WRITE.md](../WRITE.md) | third |
| [two.md](two.md) | again |
| [reference/](reference/index.md) | names |
"""
PAGES = {
    "README.md": "# Home\n[documents](docs/README.md) [two](docs/two.md#a-heading-with-code)\n",
    "WRITE.md": "# Write\n",
    "docs/README.md": INDEX,
    "docs/two.md": "# Two\n[data](data.json) [folder](more)\n\n## A heading, with `code`\nA needle.\n",
    "docs/three.md": "# Three\n",
    "docs/data.json": "{}",
    "docs/more/four.md": "# Four\n",
    "docs/reference/index.md": "<!-- written -->\n\n# Reference\n",
    "docs/reference/cli.md": "# Command line\n",
    "docs/reference/oracle.md": "# oracle\n",
}


@pytest.fixture
def tree(tmp_path):
    for name, text in PAGES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


@pytest.fixture
def built(tree, tmp_path):
    pytest.importorskip("mkdocs")

    def built(**changed):
        for name, text in changed.items():
            (tree / f"docs/{name}.md").write_text(text)
        site.build(tmp_path / "site", tree)
        return tmp_path / "site"

    return built


def test_the_navigation_is_the_tables_of_the_documents(tree):
    assert site.navigation(tree) == [
        {"Home": "README.md"},
        {"All documents": "docs/README.md"},
        {"Readers": ["docs/two.md"]},
        {"Writers": ["WRITE.md"]},
        {
            "Reference": [
                "docs/reference/index.md",
                "docs/reference/cli.md",
                {"Each name": ["docs/reference/oracle.md"]},
            ]
        },
    ]


def test_pages_are_staged_with_the_files_that_they_link_to(tree, tmp_path):
    site.stage(tree, tmp_path / "stage")
    staged = {p.relative_to(tmp_path / "stage").as_posix() for p in (tmp_path / "stage").rglob("*") if p.is_file()}

    assert staged == set(PAGES)
    assert (tmp_path / "stage/docs/two.md").read_text().startswith("# Two\n[data](data.json) folder\n")
    assert (tmp_path / "stage/docs/reference/index.md").read_text() == "# Reference\n"


def test_lists_and_blocks_are_written_for_the_renderer():
    text = "One:\n- a\n  - b\n\n1. c\n\n   ```sh\n   ls\n   ```\n\n   more\n2. d\n\n```\n  x\n- y\n```\n"

    assert site.plain_markdown(text) == (
        "One:\n\n- a\n    - b\n\n1. c\n\n        ls\n\n    more\n\n2. d\n\n```\n  x\n- y\n```\n"
    )


@pytest.mark.parametrize(
    ("name", "text", "fetches"),
    [
        ("a.html", '<script src="js/theme.js"></script><a href="https://example.org">x</a>', False),
        ("a.html", '<script async src="https://example.org/x.js"></script>', True),
        ("a.html", '<link rel="stylesheet" href="//example.org/x.css">', True),
        ("a.html", '<img alt="x" src="http://example.org/x.png">', True),
        ("a.css", "@font-face { src: url(fonts/x.woff) }", False),
        ("a.css", "@import 'https://example.org/x.css';", True),
        ("a.css", "a { background: url( 'https://example.org/x.png') }", True),
    ],
)
def test_what_a_network_would_be_needed_for_is_found(name, text, fetches, tmp_path):
    (tmp_path / name).write_text(text)

    assert site.fetched(tmp_path) == ([name] if fetches else [])


def test_a_site_has_its_pages_and_an_index_for_the_disk(built):
    folder = built()
    index = (folder / "search/index.js").read_text().removeprefix("var search_docs = ").rstrip(";\n")

    assert (folder / "docs/data.json").exists()
    assert 'href="docs/two.html#a-heading-with-code"' in (folder / "index.html").read_text()
    assert [x["location"] for x in json.loads(index) if "needle" in x["text"]] == ["docs/two.html#a-heading-with-code"]
    assert "search_docs" in (folder / "search/main.js").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "# Three\n[no](nothing.md)\n",
        "# Three\n[no](two.md#nothing)\n",
        "# Three\n![no](https://example.org/x.png)\n",
    ],
)
def test_a_dead_link_and_a_fetched_picture_are_errors(built, text):
    with pytest.raises(site.SiteError):
        built(three=text)


def test_the_documents_of_the_repository_make_a_site(tmp_path):
    pytest.importorskip("mkdocs")

    site.build(tmp_path / "site")

    assert (tmp_path / "site/docs/tutorial.html").exists()


def test_a_folder_that_is_no_site_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")

    assert site.main([str(tmp_path)]) == 2
    assert (tmp_path / "mine.txt").exists()
    assert "is no site" in capsys.readouterr().out
