"""docs/reference is what the docstrings and the options of the commands say."""

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import flashverify
from flashverify.cli import main as command_line

ROOT = Path(__file__).resolve().parents[2]
ADVICE = "run python docs/generate_reference.py"


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate_reference", ROOT / "docs/generate_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(generator):
    return generator.pages()


def test_the_pages_are_current(generator, pages):
    stored = {path.name: path.read_text(encoding="utf-8") for path in generator.FOLDER.iterdir()}

    assert stored.keys() == pages.keys(), ADVICE
    assert [name for name, text in pages.items() if stored[name] != text] == [], ADVICE


def test_a_changed_docstring_makes_its_page_stale(generator, monkeypatch, capsys):
    monkeypatch.setattr(flashverify.parse_case, "__doc__", "Another sentence.")

    assert generator.main(["--check"]) == 1
    assert capsys.readouterr().out.count("is not current") == 2  # the page and the index


def test_every_object_has_a_page_that_explains_it_and_no_two_share_one(generator, pages):
    names = [generator.page_name(getattr(flashverify, name)) for name in flashverify.__all__]

    assert len({name.lower() for name in (*names, "cli.md", "index.md")}) == len(flashverify.__all__) + 2
    for name, file in zip(flashverify.__all__, names, strict=True):
        assert f"({file})" in pages["index.md"]
        first = inspect.getdoc(getattr(flashverify, name)).split()
        assert " ".join(first[:3]) in pages[file]


def test_code_is_fenced_and_every_link_leads_somewhere(pages):
    for name, text in pages.items():
        assert text.count("```") % 2 == 0, name
        outside = "".join(text.split("```")[::2])
        assert outside.count("\n**") == text.count("\n**"), name
        assert not re.search(r"^ {4}", outside, re.MULTILINE), name
        assert all(link in pages for link in re.findall(r"\]\(([\w-]+\.md)\)", outside)), name
    assert "assert_attention_close(q, k, v, o=o, lse=lse, causal=" in pages["assert_attention_close.md"]
    assert "lse_base: Literal['e', '2'] | None = None" in pages["assert_attention_close.md"].replace('"', "'")


def test_every_option_of_every_command_is_listed(pages):
    for name, command in command_line.commands.items():
        section = pages["cli.md"].split(f"## {name}\n")[1].split("\n## ")[0]
        for parameter in command.params:
            assert max(parameter.opts, key=len) in section or parameter.param_type_name == "argument"
