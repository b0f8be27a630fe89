"""The workflows in examples/ci: their structure, what they name, and every command line of flashverify and pytest in them."""

import re
import shlex
from pathlib import Path

import click
import pytest

from flashverify import cli
from flashverify.pytest_plugin import pytest_addoption
from tests.ci.small_yaml import parse

FOLDER = Path(__file__).resolve().parents[2] / "examples/ci"
GITHUB = ("github-cpu.yml", "github-gpu.yml")
ACTIONS = {
    "actions/checkout@v4": set(),
    "actions/setup-python@v5": {"python-version"},
    "actions/cache/restore@v4": {"path", "key", "restore-keys"},
    "actions/cache/save@v4": {"path", "key"},
    "actions/upload-artifact@v4": {"name", "path"},
    "github/codeql-action/upload-sarif@v3": {"sarif_file"},
}
TOP = {"name", "on", "permissions", "env", "jobs"}
JOB = {"if", "runs-on", "timeout-minutes", "steps"}
STEP = {"name", "uses", "with", "run", "if", "env"}
FUNCTIONS = {"always", "hashFiles"}
CONTEXT = re.compile(r"github\.(event_name|event\.number|run_id|token)\b")
GITLAB_JOB = {"rules", "script", "artifacts", "timeout"}


def loaded(name):
    return parse((FOLDER / name).read_text(encoding="utf-8"))


def commands(name):
    """Every shell line of a workflow."""
    found = loaded(name)
    if name in GITHUB:
        return [step["run"] for job in found["jobs"].values() for step in job["steps"] if "run" in step]
    jobs = [job for key, job in found.items() if key not in ("variables", "default")]
    return [*found["default"]["before_script"], *(line for job in jobs for line in job["script"])]


def parsed_options(line):
    """The command of flashverify in a shell line and its options; None where it has none."""
    words = shlex.split(line)
    at = next(
        (n for n, word in enumerate(words) if word.rpartition("/")[2] == "flashverify" and "install" not in words), None
    )
    if at is None:
        return None
    command = cli.main.commands[words[at + 1]]
    return command.make_context(words[at + 1], words[at + 2 :]).params


@pytest.mark.parametrize("name", GITHUB)
def test_a_workflow_has_the_keys_that_github_knows(name):
    found = loaded(name)

    assert set(found) == TOP
    assert set(found["on"]) <= {"pull_request", "push", "schedule"}
    assert all(re.fullmatch(r"\d+ \d+ \* \* \*", each["cron"]) for each in found["on"]["schedule"])
    assert set(found["permissions"].values()) <= {"read", "write"}
    for job in found["jobs"].values():
        assert set(job) == JOB
        for step in job["steps"]:
            assert set(step) <= STEP
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                assert set(step.get("with", ())) == ACTIONS[step["uses"]]


@pytest.mark.parametrize("name", GITHUB)
def test_expressions_name_what_github_has(name):
    text = (FOLDER / name).read_text(encoding="utf-8")
    expressions = re.findall(r"\$\{\{(.*?)\}\}", text) + re.findall(r"^\s*if: (.*)$", text, re.MULTILINE)

    assert expressions
    for each in expressions:
        plain = re.sub(r"'[^']*'", "", each)
        assert set(re.findall(r"(\w+)\(", plain)) <= FUNCTIONS
        assert not re.findall(r"[a-z]\w*\.", CONTEXT.sub("", plain)), each


def test_the_pipeline_has_the_keys_that_gitlab_knows():
    found = loaded("gitlab-ci.yml")

    assert set(found["default"]) == {"image", "cache", "before_script"}
    for name, job in found.items():
        if name not in ("variables", "default"):
            assert set(job) <= GITLAB_JOB
            assert set(job["artifacts"]) <= {"when", "paths", "reports"}
            assert all(set(rule) == {"if"} for rule in job["rules"])


@pytest.mark.parametrize("name", [*GITHUB, "gitlab-ci.yml"])
def test_every_command_line_is_accepted_and_the_corpus_is_kept(name):
    found = [options for line in commands(name) if (options := parsed_options(line)) is not None]

    assert len(found) == 2
    assert len({options["corpus"] for options in found}) == 1
    assert found[0]["minutes"]
    assert found[1]["hours"]
    for line in commands(name):
        if "pytest" in line:
            assert set(re.findall(r"--[\w-]+", line)) <= {"--junitxml"}
    text = (FOLDER / name).read_text(encoding="utf-8")
    for path in (options[key] for options in found for key in ("junit", "sarif", "comment", "badge")):
        assert path is None or path.startswith("out/")
    if (kept := found[0]["corpus"]) == "corpus.txt":
        assert f"path: {kept}" in text or f"- {kept}" in text


def test_an_option_that_does_not_exist_is_found():
    with pytest.raises(click.NoSuchOption):
        parsed_options("flashverify run --junits out/junit.xml")


@pytest.mark.parametrize(
    "text", ["a: &b c", "a:\n\tb: c", "a: b\na: c", "a: |\n  b", "a: {b: c}", "a:\n   b: c\n  d: e", 'a: "b']
)
def test_yaml_beyond_what_is_read_is_refused(text):
    with pytest.raises(AssertionError):
        parse(text)


def test_the_reader_reads_what_it_says():
    text = 'a:\n  - b: 1\n    c: "x: y"\n  - d\ne: [f, g]\nh i:\n  j: k\nl:\n'

    assert parse(text) == {"a": [{"b": 1, "c": "x: y"}, "d"], "e": ["f", "g"], "h i": {"j": "k"}, "l": None}


def test_the_options_of_pytest_in_the_documents_exist():
    class Group:
        def __init__(self):
            self.names = set()

        def getgroup(self, *words):
            return self

        def addoption(self, name, **settings):
            self.names.add(name)

    group = Group()
    pytest_addoption(group)
    docs = FOLDER.parents[1] / "docs"
    named = {
        name
        for page in (docs / "pytest.md", docs / "baseline.md", docs / "ci.md", FOLDER.parent / "project/README.md")
        for name in re.findall(r"--flashverify-[\w-]+", page.read_text(encoding="utf-8"))
    }

    assert named == group.names
