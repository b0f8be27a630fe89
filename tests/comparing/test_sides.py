"""What a side may be, and that a revision's own modules are judged."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from flashverify.cli import main
from flashverify.comparing import judged_sides
from flashverify.comparing.functions import changed_functions, functions_of
from flashverify.comparing.sides import Side, sides_of
from flashverify.comparing.speed import rounds
from flashverify.comparing.thresholds import Thresholds, read_thresholds
from flashverify.errors import ConfigError, UsageError

KERNEL = """
import torch

def attention(q, k, v, scale):
    # weights
    s = (q.float() @ k.float().transpose(-1, -2)) * scale
    p = torch.softmax(s, -1)
    return (p{rounded} @ v.float()).to(q.dtype)
"""
SUBJECT = """
import flashverify
from own.kernel import attention

SUPPORTS = flashverify.Supports(dtypes=("fp16",), gqa=False, backward=False, empty=False, dim_max=32)

@flashverify.subject(supports=SUPPORTS, contract=flashverify.Contract(lse_base=None))
def mine(problem):
    return attention(problem.q, problem.k, problem.v, problem.scale)
"""


class SideOf:
    """A process of a side that imports nothing: it knows the first of some functions, and after a call the next."""

    def __init__(self, own):
        self.own = list(own)

    def functions(self):
        return {self.own[0]: ""} if self.own and self.own[0] else {}

    def ask_for(self, case):
        self.own[:1] = []

    def measured(self):
        """No values are asked for."""


LATE = SUBJECT.replace("from own.kernel import attention\n", "").replace(
    "    return", "    from own.kernel import attention\n    return"
)


def git(folder, *words):
    setting = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *setting, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository of two revisions: the second one rounds P to bf16."""
    folder = tmp_path / "project"
    (folder / "src/own").mkdir(parents=True)
    (folder / "src/own/__init__.py").write_text("")
    (folder / "under_test.py").write_text(SUBJECT)
    git(folder, "init", "-q")
    for rounded in ("", ".bfloat16().float()"):
        (folder / "src/own/kernel.py").write_text(KERNEL.format(rounded=rounded))
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "kernel")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder / "src"))
    return folder


def compared(*arguments):
    return CliRunner().invoke(main, ["compare", *arguments, "--device", "cpu", "--workers", "1"])


@pytest.fixture
def imported_late(project):
    """Two revisions that differ as those of `project`, of a subject that imports the kernel in its first call."""
    (project / "under_test.py").write_text(LATE)
    for rounded in ("", ".bfloat16().float()"):
        (project / "src/own/kernel.py").write_text(KERNEL.format(rounded=rounded))
        git(project, "commit", "-qam", "imported in the first call")
    return project


def judged_each(done, out):
    """The comparison of two revisions, of which each was judged with its own modules."""
    assert done.exit_code == 1, done.output
    assert done.stdout.startswith("DO NOT MERGE\n")
    assert "Changed code: 1 function\n  src/own/kernel.py:attention" in done.stdout
    document = json.loads((out / "comparison.json").read_text())
    assert document["elements"]["rows"][0]["changed"] > 0
    return document


@pytest.mark.slow
def test_two_revisions_are_judged_each_with_its_own_modules(imported_late, tmp_path):
    out = tmp_path / "c"
    judged_each(compared("HEAD~1..HEAD", "--subject", "under_test.py:mine", "--cases", "3", "--out", str(out)), out)


@pytest.mark.slow
@pytest.mark.thorough
def test_two_revisions_are_judged_and_timed_each_with_its_own_modules(imported_late, tmp_path, monkeypatch):
    monkeypatch.setattr(rounds, "ROUNDS", 2)
    words = ("--subject", "under_test.py:mine", "--cases", "3", "--timings")
    done = compared("HEAD~1..HEAD", *words, "--out", str(tmp_path / "c"))
    document = judged_each(done, tmp_path / "c")
    assert (document["speeds"]["evidence"], document["speeds"]["reason"]) == ("cpu", "")
    rows = [(row["shape"]["seq_k"], row["shape"]["dim"], len(row["after_ms"])) for row in document["speeds"]["rows"]]
    assert rows == [(128, 32, 2), (512, 32, 2)]
    assert done.stdout.count("forward fp16 B=1 H=2 N=") == 2
    assert {path.suffix for path in (tmp_path / "c").glob("comparison.*")} == {".html", ".json", ".md"}
    assert git(imported_late, "worktree", "list").count("\n") == 1
    said = compared(str(tmp_path / "c"), "--explain", "worst:o:fp16")
    assert said.exit_code == 0, said.output
    assert "flashverify replay 'fv1" in said.stdout
    assert compared(str(tmp_path / "c"), "--explain", "worst").exit_code == 2


@pytest.mark.thorough
def test_a_revision_compared_with_itself_is_no_change(project, tmp_path):
    done = compared("HEAD..HEAD", "--subject", "under_test.py:mine", "--cases", "4", "--out", str(tmp_path / "c"))
    assert done.exit_code == 0, done.output
    assert "no change. Every element of 4 cases has the same bits." in done.stdout
    assert "Changed code: no function" in done.stdout


@pytest.mark.slow
def test_a_subject_that_imports_the_working_copy_is_refused(project, tmp_path):
    insert = f"import sys, importlib.util as u\nspec = u.spec_from_file_location('own.kernel', {str(project / 'src/own/kernel.py')!r})\n"
    text = SUBJECT.replace(
        "from own.kernel import attention",
        f"{insert}m = sys.modules['own.kernel'] = u.module_from_spec(spec)\nspec.loader.exec_module(m)\nattention = m.attention",
    )
    (project / "under_test.py").write_text(text)
    git(project, "commit", "-qam", "imports by its path")
    done = compared("HEAD..HEAD", "--subject", "under_test.py:mine", "--cases", "2", "--out", str(tmp_path / "c"))
    assert done.exit_code == 2, done.output
    assert "imports own.kernel from" in done.output


@pytest.mark.parametrize("own", [(), ("own.kernel:attention",), ("", "own.kernel:attention")], ids=str)
def test_a_folder_of_which_nothing_is_imported_is_refused(tmp_path, monkeypatch, own):
    """`own`: what the process knows of the folder before the first call, and after it."""
    side = Side(kind="folder", text="before", spec="torch-cpu", folder=tmp_path)
    monkeypatch.setattr(judged_sides, "side_process", lambda *_: contextlib.nullcontext(process))
    process = SideOf(own)
    said = pytest.raises(UsageError, match="'before' is not accepted: subject 'torch-cpu' imports nothing from there")
    with contextlib.nullcontext() if own else said:
        judged_sides._require_own(side, process, None, ("fv1", "fv1 seq_q=2"))


@pytest.mark.slow
@pytest.mark.thorough
def test_the_command_refuses_a_folder_that_the_subject_does_not_come_from(tmp_path):
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    folders = str(tmp_path / "before"), str(tmp_path / "after")
    done = compared(*folders, "--subject", "torch-cpu", "--cases", "2", "--out", str(tmp_path / "c"))
    assert done.exit_code == 2, done.output
    assert f"{folders[0]!r} is not accepted: subject 'torch-cpu' imports nothing from there" in done.output


def test_a_stored_run_is_not_timed(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    done = compared(str(tmp_path), "torch-cpu", "--timings")
    assert done.exit_code == 2
    assert f"--timings is not accepted: '{tmp_path}' is a stored run" in done.output


def test_what_a_side_may_be(project, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/run.json").write_text("{}")
    sides = sides_of(("HEAD~1", str(project)), "under_test.py:mine")
    assert [side.kind for side in sides] == ["revision", "folder"]
    assert sides[0].commit == git(project, "rev-parse", "HEAD~1").strip()
    assert [side.kind for side in sides_of((str(tmp_path / "run"), "torch-cpu"), None)] == ["run", "subject"]
    first, second = sides_of(("HEAD~1...",), "under_test.py:mine")
    assert (first.commit, second.text) == (sides[0].commit, "HEAD")


@pytest.mark.parametrize(
    ("texts", "spec", "said"),
    [
        (("HEAD",), "under_test.py:mine", "two sides, or two revisions as BASE..CANDIDATE"),
        (("torch-cpu", "bundled"), "under_test.py:mine", "neither side is a folder or a revision"),
        (("HEAD~1", "HEAD"), None, "'HEAD~1' is not accepted: it is no run folder, and subject"),
        (("nothing", "HEAD"), "under_test.py:mine", "no folder, no revision, and subject 'nothing' is not known"),
        (("nothing...HEAD",), "under_test.py:mine", "not revisions with a merge base"),
        ((".", "HEAD"), None, "it is no run folder; accepted: a run folder, a subject, or with --subject a folder"),
    ],
)
def test_a_side_that_is_nothing_is_refused(project, texts, spec, said):
    with pytest.raises(UsageError) as error:
        sides_of(texts, spec)
    assert said in str(error.value)


def loaded(folder: Path, text: str):
    """The functions of a module of this text."""
    name = f"loaded_{folder.name}"
    (folder / f"{name}.py").write_text(text)
    sys.path.insert(0, str(folder))
    try:
        __import__(name)
        return {key.partition(":")[2]: code for key, code in functions_of(folder).items()}
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_comments_docstrings_and_layout_are_no_change_of_a_function(tmp_path):
    folders = [tmp_path / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
    first = loaded(folders[0], "K = 1\ndef f(x):\n    return x + K\ndef g(): pass\n")
    second = loaded(
        folders[1], 'K = 1\n# why\ndef f(x):\n    """Says."""\n    return (x\n            + K)\ndef g(): pass\n'
    )
    third = loaded(folders[2], "K = 2\ndef f(x):\n    return x - K\ndef h(): pass\n")
    assert changed_functions(first, second) == ()
    found = {each.name: each for each in changed_functions(first, third)}
    assert {name: each.change for name, each in found.items()} == {
        "(module level)": "changed",
        "f": "changed",
        "g": "removed",
        "h": "added",
    }
    assert "-    return x + K\n+    return x - K" in found["f"].diff


def test_thresholds_come_from_the_nearest_pyproject(tmp_path):
    (tmp_path / "inner").mkdir()
    file = tmp_path / "pyproject.toml"
    file.write_text(
        "[tool.flashverify]\nworkers = 2\n[tool.flashverify.compare]\nerror-growth = 1.5\nnegligible = 0\ntime-growth = 1.05\n"
    )
    assert read_thresholds(tmp_path / "inner") == Thresholds(error_growth=1.5, negligible=0.0, time_growth=1.05)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("error-growth = 0.5", "error-growth=0.5 is not accepted: a factor of at least 1"),
        ("bias-shift = true", "bias-shift=True is not accepted: a number of at least 0"),
        ("memory-growth = 0.9", "memory-growth=0.9 is not accepted: a factor of at least 1"),
        ("growth = 2", "unknown key 'growth'"),
    ],
)
def test_a_wrong_threshold_is_one_error(tmp_path, line, said):
    (tmp_path / "pyproject.toml").write_text(f"[tool.flashverify.compare]\n{line}\n")
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        read_thresholds(tmp_path)
