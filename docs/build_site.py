"""Writes a static site of all documents with a search: python docs/build_site.py [FOLDER], by default out/site.

The pages are those of the repository, at the same places, with the files that they link to. The navigation is the table of
docs/README.md. A dead link or anchor, and anything that a page would fetch from a network, is an error. The site works from
the disk too. Needs mkdocs (`pip install -c constraints.txt -e '.[docs]'`).
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OWN = Path(__file__).resolve().parent / "site"
FOLDERS = ("docs", "tests", "benchmarks", "examples", "oracles", "reports")
_LINK = re.compile(r"\]\(([^)\s#]+)")
_FENCED = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
_ROW = re.compile(r"^\| \[[^]]*\]\(([^)#]+)\)", re.MULTILINE)
_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\bsrc=["']?(?:https?:)?//|<link[^>]*\bhref=["']?(?:https?:)?//"""
)
_FETCHED_BY_STYLE = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])(?:https?:)?//""")


class SiteError(Exception):
    """The site cannot be built, or would need a network."""


def build(folder: Path, root: Path = ROOT) -> None:
    """Write the site of the documents below `root` into `folder`, which is emptied.

    Raises:
        SiteError: a link, an anchor or a page of the navigation leads nowhere, or a page would fetch something.
    """
    import click
    from mkdocs.commands.build import build as build_pages
    from mkdocs.config.defaults import MkDocsConfig

    with tempfile.TemporaryDirectory() as name:
        stage(root, Path(name))
        config = MkDocsConfig()
        config.load_dict(settings(Path(name), folder))
        errors, warnings = config.validate()
        if errors or warnings:
            raise SiteError("; ".join(f"{key}: {message}" for key, message in [*errors, *warnings]))
        config.plugins.on_startup(command="build", dirty=False)
        try:
            build_pages(config)
        except click.ClickException as error:
            raise SiteError(error.format_message()) from error
    write_index(folder / "search")
    found = fetched(folder)
    if found:
        raise SiteError(f"these would fetch something from a network: {', '.join(found)}")


def write_index(folder: Path) -> None:
    """Make a script of the index's sections, which a page may load from the disk, in place of what mkdocs' search fetches."""
    index = folder / "search_index.json"
    entries = json.loads(index.read_text(encoding="utf-8"))["docs"]
    sections = [entry for entry in entries if "#" in entry["location"]]
    text = json.dumps(sections, ensure_ascii=False).replace("</", "<\\/")
    (folder / "index.js").write_text(f"var search_docs = {text};\n", encoding="utf-8")
    for unused in (index, folder / "lunr.js", folder / "worker.js"):
        unused.unlink()


def stage(root: Path, folder: Path) -> None:
    """Copy the documents to the same places below `folder`, and the files that they link to."""
    pages = [*root.glob("*.md"), *(path for name in FOLDERS for path in (root / name).rglob("*.md"))]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        target = folder / page.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(plain_markdown(without_folders(text, page.parent)), encoding="utf-8")
        for link in _LINK.findall(_FENCED.sub("", text)):
            file = (page.parent / link).resolve()
            if "://" not in link and file.is_file() and file.suffix != ".md" and file.is_relative_to(root):
                copy = folder / file.relative_to(root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)


def without_folders(text: str, folder: Path) -> str:
    """A page of `folder` whose links to other folders, which a site does not show, are their text."""
    return re.sub(r"\[([^]]*)\]\(([^)\s#]+)\)", lambda m: m[1] if (folder / m[2]).is_dir() else m[0], text)


def plain_markdown(text: str) -> str:
    """What forges read as a title, a list or a block within a list, written so that Python's Markdown reads it so too."""
    parts = _FENCED.split(re.sub(r"\A(<!--.*?-->\s*)+", "", text, flags=re.DOTALL))
    for n, part in enumerate(parts):
        if n % 2:
            parts[n] = _indented(part) if part.startswith(" ") else part
        else:
            part = re.sub(r"^((?![-#|>]|\d+\. |\s).*)\n(?=- |1\. )", r"\1\n\n", part, flags=re.MULTILINE)
            part = re.sub(r"(\n\n {2,3}\S.*)\n(?=- |\d+\. )", r"\1\n\n", part)
            parts[n] = re.sub(r"^ {2,3}(?=\S)", "    ", part, flags=re.MULTILINE)
    return "".join(parts)


def _indented(block: str) -> str:
    """A fenced block within a list as an indented one."""
    lines = block.splitlines()
    margin = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(" " * 8 + line[margin:] if line.strip() else "" for line in lines[1:-1])


def navigation(folder: Path) -> list[Any]:
    """The sections of docs/README.md with the pages of their tables, each page once, and the pages of the reference."""
    text = (folder / "docs/README.md").read_text(encoding="utf-8")
    seen = {"README.md"}
    found: list[Any] = [{"Home": "README.md"}, {"All documents": "docs/README.md"}]
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        pages: list[Any] = []
        for link in _ROW.findall(body):
            path = (folder / "docs" / link).resolve().relative_to(folder.resolve()).as_posix()
            if path not in seen and not link.startswith("reference/"):
                pages.append(path)
            seen.add(path)
        found.append({title: pages})
    first = ["docs/reference/index.md", "docs/reference/cli.md"]
    others = sorted(f"docs/reference/{path.name}" for path in (folder / "docs/reference").glob("*.md"))
    return [*found, {"Reference": [*first, {"Each name": [path for path in others if path not in first]}]}]


def anchor(heading: str, separator: str) -> str:
    """The anchor of a heading, as forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def settings(pages: Path, folder: Path) -> dict[str, Any]:
    """The settings of mkdocs."""
    return {
        "site_name": "flashverify",
        "site_url": "",
        "docs_dir": str(pages),
        "site_dir": str(folder),
        "strict": True,
        "use_directory_urls": False,
        "nav": navigation(pages),
        "theme": {
            "name": "readthedocs",
            "custom_dir": str(OWN),
            "highlightjs": False,
            "include_homepage_in_sidebar": False,
            "navigation_depth": 2,
        },
        "extra_css": ["site.css"],
        "plugins": ["search"],
        "markdown_extensions": ["sane_lists", {"toc": {"slugify": anchor, "permalink": True}}],
        "validation": {
            "nav": {"omitted_files": "ignore", "not_found": "warn", "absolute_links": "warn"},
            "links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn", "unrecognized_links": "warn"},
        },
    }


def fetched(folder: Path) -> list[str]:
    """The files of a site that would fetch something from a network."""
    patterns = {".html": _FETCHED, ".css": _FETCHED_BY_STYLE}
    files = sorted(path for path in folder.rglob("*") if path.suffix in patterns)
    return [
        path.relative_to(folder).as_posix()
        for path in files
        if patterns[path.suffix].search(path.read_text(encoding="utf-8"))
    ]


def main(arguments: list[str]) -> int:
    """Builds the site, or says in a line each why not."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    folder = Path(arguments[0] if arguments else "out/site").resolve()
    if folder.exists() and any(folder.iterdir()) and not (folder / "search/index.js").exists():
        print(f"{folder} is no site: name a new folder, or an earlier site")
        return 2
    try:
        build(folder)
    except ModuleNotFoundError as error:
        print(f"{error.name} is not installed: pip install -c constraints.txt -e '.[docs]'")
        return 2
    except SiteError as error:
        print(error)
        return 1
    print(f"{folder}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
