"""docs/tutorial.md: its kernel has the bug that it says, its fix mends it, and what it shows is what is printed."""

import re
import shutil

import pytest

from flashverify import count_masks, judge_case, load_subject, parse_case
from tests.documents.blocks import ROOT, blocks

PAGE = ROOT / "docs/tutorial.md"
FOLDER = ROOT / "examples/tutorial"
BLOCKS = blocks(PAGE)
(FIX,) = (block.text.splitlines() for block in BLOCKS if block.language == "diff")
CASES = sorted(set(re.findall(r"'(fv1 [^']+)'", PAGE.read_text(encoding="utf-8"))))


@pytest.fixture
def copy(tmp_path):
    return shutil.copytree(FOLDER, tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__"))


def mend(folder):
    path, (wrong, right) = folder / "attention.py", (line[1:] for line in FIX)
    text = path.read_text()
    assert text.count(wrong) == 1
    path.write_text(text.replace(wrong, right))


def judged(folder):
    kernel = load_subject(f"{folder / 'attention.py'}:mine")
    return {
        text: {v.output for v in judge_case(kernel, parse_case(text), checks=("accuracy",)).failures} for text in CASES
    }


def test_every_case_of_the_page_shows_the_bug_in_both_outputs(copy):
    assert judged(copy) == {text: {"o", "lse"} for text in CASES}


def test_the_fix_of_the_page_mends_every_case(copy):
    mend(copy)

    assert judged(copy) == {text: set() for text in CASES}


def test_the_declaration_and_the_marker_of_the_page_are_those_of_the_files():
    declared, marked = (block.text.partition("\n\n")[2].strip() for block in BLOCKS if block.language == "python")

    assert declared.partition("\n\n")[2] in (FOLDER / "attention.py").read_text()
    assert marked in (FOLDER / "test_attention.py").read_text()


def test_replay_and_xray_say_what_the_page_shows(copy):
    kernel, text = load_subject(f"{copy / 'attention.py'}:mine"), PAGE.read_text(encoding="utf-8")
    replayed, counted = (
        re.search(rf"^flashverify {x} .*'(fv1 .*?)'", text, re.MULTILINE)[1] for x in ("replay", "xray")
    )
    said = [
        v.message for v in judge_case(kernel, parse_case(replayed), checks=("accuracy",)).failures if v.output == "o"
    ]
    said += [f"{n}. {x.message}" for n, x in enumerate(count_masks(kernel, counted).differences, 1)]

    assert len(said) == 3
    assert [x for x in said if x not in text] == []
