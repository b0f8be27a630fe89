"""Every command and every block of the documents is run, parsed or compiled (tests/README.md has the rule)."""

import json
import tomllib

import pytest
import torch

from flashverify import corrected_interpreter, judge_case, load_subject, parse_case
from flashverify.subjects.registry import REGISTERED
from tests.documents.blocks import GENERATED, INLINE, PAGES, all_blocks, blocks, prose
from tests.documents.programs import why_not_run, wrong_names
from tests.documents.shell import commands, unknown_options, wrong_with

LANGUAGES = {
    "": "output",
    "sh": "parsed",
    "python": "run",
    "toml": "read",
    "json": "read",
    "cpp": "tests/vectors",
    "diff": "tests/documents/test_tutorial.py",
}
PYTHON = all_blocks("python")
# What the pages call by these names is the reader's: a kernel that returns O and LSE, and its tensors `[B, H, S, D]`.
GIVEN = frozenset({"pytest", "torch", "my_attention", "q", "k", "v", "do"})
PROGRAMS = [block for block in PYTHON if not why_not_run(block.text, GIVEN)]


def my_attention(q, k, v, causal=False, scale=None):
    """O and the natural LSE in plain torch, causal from the top left."""
    s = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return s.softmax(-1) @ v, s.logsumexp(-1)


def given():
    q, k, v, do = torch.randn(4, 1, 2, 9, 16, generator=torch.Generator().manual_seed(0))
    leaves = {name: x.requires_grad_() for name, x in (("q", q.clone()), ("k", k.clone()), ("v", v.clone()))}
    return {"pytest": pytest, "torch": torch, "my_attention": my_attention, "do": do, **leaves}


def complaints(block):
    return [x for words in commands(block.text) for x in wrong_with(words, block.page.parent)]


@pytest.mark.parametrize("page", [p for p in PAGES if GENERATED not in p.parents], ids=lambda page: page.name)
def test_the_language_of_a_block_has_a_test(page):
    assert [str(b) for b in blocks(page) if b.language not in LANGUAGES] == []


@pytest.mark.parametrize("block", all_blocks("sh"), ids=str)
def test_commands_are_parsed_by_what_would_run_them(block):
    assert complaints(block) == []


@pytest.mark.parametrize("page", [p for p in PAGES if GENERATED not in p.parents], ids=lambda page: page.name)
def test_options_of_commands_within_sentences_exist(page):
    assert [x for code in INLINE.findall(prose(page)) for x in unknown_options(code)] == []


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_compiles_and_what_it_takes_from_flashverify_is_there(block):
    compile(block.text, str(block), "exec")

    assert list(wrong_names(block.text)) == []


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_whole_program_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block.text, str(block), "exec"), {"__name__": "block", **given()})


@pytest.mark.parametrize("block", [*all_blocks("toml"), *all_blocks("json")], ids=str)
def test_data_is_read(block):
    assert (tomllib.loads if block.language == "toml" else json.loads)(block.text)


PAGE = """# One
```sh
flashverify fuzz --subject mine.py:mine --minute 5   # no such option
flashverify fuzz --minutes five && flashverify nothing
FLASHVERIFY_SEED=1 flashverify replay 'fv1 seq_z=5' --subject torch-cpu > out
flashverify run --subject torch-gpu; flashverify run --device tpu
python benchmarks/none.py; python -m pytest tests/none --flashverify-nothing; make nothing
frobnicate \\
  --all
```
- in a list
  ```python
  from flashverify import Nothing, Supports
  Supports(mask=("causal",))
  ```
"""


def test_wrong_commands_and_names_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    shell, python = blocks(page)
    said = "\n".join(complaints(shell))

    for word in ("--minute", "five", "no command nothing", "seq_z", "torch-gpu", "tpu", "none.py", "tests/none"):
        assert word in said
    for word in ("--flashverify-nothing", "no target nothing", "unknown command frobnicate"):
        assert word in said
    assert len(complaints(shell)) == 11
    assert list(wrong_names(python.text)) == ["flashverify.Nothing", "Supports(mask=)"]
    assert unknown_options("flashverify fuzz --subject NAME --minuts N") == ["--minuts"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import json\nprint(json.dumps([x for x in (1, 2)]))", ""),
        ("def later():\n    return mine", ""),
        ("# needs a GPU\nimport torch", "it says what it needs"),
        ("import no_such_package", "it imports no_such_package"),
        ("@pytest.mark.slow\ndef test(): ...", "it uses pytest of the reader's"),
        ("y = [k for _ in (1, 2)]", "it uses k of the reader's"),
    ],
)
def test_a_block_runs_unless_it_needs_something_of_the_reader(text, reason):
    assert why_not_run(text) == reason


REPLAYS = sorted(
    {
        (
            words[words.index("--subject") + 1],
            words[2],
            words[words.index("--check") + 1] if "--check" in words else "accuracy",
        )
        for block in all_blocks("sh")
        if "reports" not in block.page.parts
        for words in commands(block.text)
        if words[:2] == ["flashverify", "replay"] and words[2].startswith("fv1 ") and "..." not in words[2]
    }
)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text", "check"), [x for x in REPLAYS if x[0] in {one.name for one in REGISTERED}])
def test_a_case_that_a_page_replays_passes_on_every_subject_but_the_wrong_example(name, text, check):
    with corrected_interpreter():
        result = judge_case(load_subject(name), parse_case(text), checks=(check,))

    assert result.verdicts
    assert bool(result.failures) == (name == "seed-document")
