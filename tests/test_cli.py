import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from flashverify import cli
from flashverify.campaign import toolkit
from flashverify.campaign.store.writer import open_run

ROOT = Path(__file__).resolve().parents[1]
FAKES = ROOT / "tests" / "campaign"


@pytest.fixture
def call(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.setattr(toolkit, "BUNDLED", "fake_toolkit:toolkit")

    def call(*arguments, stdin=None):
        return CliRunner().invoke(cli.main, [str(a) for a in arguments], input=stdin)

    return call


def run(call, *arguments):
    return call(*arguments, "--device", "cpu", "--workers", "1", "--no-report")


def test_a_clean_run_exits_0_and_says_pass_first(call):
    done = run(call, "run", "--subject", "clean", "--out", "r")

    assert (done.exit_code, done.stdout.splitlines()[0]) == (
        0,
        "PASS, thin: no finding, but only 20 covering cases (below 100)",
    )
    assert "run: r" in done.stdout


@pytest.mark.slow
def test_findings_exit_1_and_end_with_their_replay_line(call):
    done = run(call, "fuzz", "--subject", "tail", "--out", "r", "--max-cases", "30", "--seed", "1", "--no-corpus")

    assert (done.exit_code, done.stdout.splitlines()[0]) == (1, "FAIL: 1 finding")
    assert "how sure: failed 3 of 3 fresh runs, confirmed by mpmath: got 2, exact 1, bound 0.0009765625" in done.stdout
    case = open_run("r").findings[0].record.case
    assert f"flashverify replay '{case}' --subject tail --check accuracy" in done.stdout

    (folder,) = Path("r/findings").iterdir()
    for argument in (folder, folder / "case.json", folder / "finding.json"):
        assert call("replay", argument).exit_code == 1
    replayed = call("replay", case, "--subject", "tail", "--check", "accuracy")
    assert "FAIL: tail" in replayed.stdout
    piped = call("replay", "-", "--subject", "clean", "--json", stdin=case)
    assert (0, case) == (piped.exit_code, json.loads(piped.stdout)["case"])


def test_json_is_one_object_on_stdout(call):
    done = run(
        call, "fuzz", "--subject", "tail", "--out", "r", "--max-cases", "20", "--seed", "1", "--json", "--no-corpus"
    )

    found = json.loads(done.stdout)
    assert (found["exit_code"], found["verdict"], found["summary"]["stopped"]) == (1, "FAIL: 1 finding", "budget")
    assert found["findings"][0]["replay"].startswith("flashverify replay ")
    assert 0 < float.fromhex(found["worst"]["o"]) <= 1


def test_a_case_that_kills_is_replayed_as_a_failure(call):
    done = call("replay", "fv1 seq_q=50", "--subject", "segfault")

    assert done.exit_code == 1
    assert "SIGSEGV" in done.stdout


@pytest.mark.slow
def test_nothing_judged_exits_3(call):
    done = run(call, "run", "--subject", "refuses", "--out", "r")

    assert (done.exit_code, done.stdout.splitlines()[0]) == (3, "NO VERDICT: no case was judged")
    assert call("replay", "fv1", "--subject", "refuses").exit_code == 3


def test_a_full_disk_exits_3(call, monkeypatch):
    from flashverify.campaign.store import files

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    done = run(call, "run", "--subject", "clean", "--out", "r")
    assert done.exit_code == 3
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fuzz", "--workers", "none"), ("--workers", "'none'", "integer")),
        (("fuzz", "--device", "tpu"), ("--device", "'tpu'", "auto, cpu, cuda")),
        (("fuzz", "--sede", "1"), ("unknown option --sede", "--seed")),
        (("fuzzy",), ("No such command 'fuzzy'", "fuzz")),
        (("fuzz", "--subject", "missing", "--max-cases", "1", "--device", "cpu"), ("subject 'missing' is not known",)),
        (("replay", "fv1 seq_q=x", "--subject", "s"), ("seq_q='x'", "not accepted")),
        (("replay", "nothing"), ("case='nothing'", "case.json")),
        (("replay", "fv1"), ("--subject is missing",)),
        (("replay", "fv1", "--subject", "s", "--check", "nonsense"), ("check='nonsense'", "accuracy")),
        (("compare", "a", "b", "--cases", "0"), ("--cases", "0")),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(call, arguments, words):
    done = call(*arguments)

    assert done.exit_code == 2, done.output
    (line,) = done.stderr.strip().splitlines()
    assert all(word in line for word in words), line


def test_unknown_settings_exit_2(call, monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.flashverify]\nworker = 2\n", encoding="utf-8")
    assert "unknown key 'worker'" in call("fuzz").stderr
    monkeypatch.setenv("FLASHVERIFY_WORKER", "2")
    assert call("fuzz").exit_code == 2


def test_damaged_and_missing_runs_exit_3(call, tmp_path):
    done = call("report", tmp_path / "nothing")

    assert (done.exit_code, len(done.stderr.splitlines())) == (3, 1)


def test_no_command_shows_help_and_exits_2(call):
    done = call()

    assert done.exit_code == 2
    assert "Usage: flashverify" in done.stderr


@pytest.mark.parametrize(
    "arguments", [("--help",), ("fuzz", "--help"), ("list",), ("list", "--json"), ("report", "nowhere")]
)
def test_light_commands_import_neither_torch_nor_triton(arguments):
    assert imported_by(arguments, "torch", "triton", "hypothesis", "numpy") == ""


@pytest.mark.parametrize("command", ["fuzz", "run"])
def test_a_subject_that_is_not_known_is_refused_before_torch_is_imported(command):
    assert imported_by((command, "--subject", "nothing"), "torch", "triton", "hypothesis") == ""


def imported_by(arguments, *modules):
    """Which of these modules a command imports, in words; empty for none."""
    code = (
        "import sys, flashverify.cli as c\n"
        "try:\n    c.main(sys.argv[1:])\n"
        "except SystemExit:\n    pass\n"
        f"heavy = set({modules!r}) & sys.modules.keys()\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT)
    return done.stderr if done.returncode else ""


def test_every_command_documents_itself():
    for name, command in cli.main.commands.items():
        assert command.help, name
        assert all(p.help for p in command.params if isinstance(p, click.Option)), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.thorough)]
)
def test_a_signal_stores_everything_and_exits(tmp_path, number, code):
    driver = (
        f"import sys; sys.path.insert(0, {str(FAKES)!r})\n"
        "from flashverify.campaign import toolkit; toolkit.BUNDLED = 'fake_toolkit:toolkit'\n"
        "from flashverify.cli import main; main(sys.argv[1:])\n"
    )
    arguments = (
        "fuzz",
        "--subject",
        "slow-tail",
        "--hours",
        "1",
        "--out",
        "r",
        "--workers",
        "1",
        "--device",
        "cpu",
        "--no-report",
    )
    process = subprocess.Popen(
        [sys.executable, "-c", driver, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    for line in process.stderr:
        if line.startswith("finding:"):
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=30)

    assert code == process.returncode, err
    run = open_run(tmp_path / "r")
    seen = len(run.findings)  # the search goes on until the signal arrives, and may meet a second one
    assert seen >= 1
    assert run.summary.part.endswith("corpus cases judged")
    assert out.splitlines()[0] == f"INTERRUPTED: {run.summary.part}, {seen} finding{'s' * (seen > 1)} so far"
    assert ("interrupted", code) == (run.summary.stopped, run.summary.exit_code)
    assert run.summary.cases == len(list(run.results())) > 0


@pytest.mark.slow
def test_two_subjects_are_compared_on_the_same_cases(call, monkeypatch):
    import types

    seen = []

    class Comparison:
        exit_code = 1

        def to_text(self):
            return "DO NOT MERGE"

        def to_json(self):
            return "{}"

        def to_markdown(self):
            return "**do not merge**"

        def to_html(self):
            return "<p>do not merge</p>"

    def compare_sides(sides, baseline, limits):
        assert baseline is None
        seen.append([[r.case for r in open_run(side).results()] for side in sides.runs])
        return Comparison()

    fake = types.ModuleType("flashverify.comparing.comparison")
    fake.compare_sides = compare_sides
    monkeypatch.setitem(sys.modules, "flashverify.comparing.comparison", fake)
    done = call("compare", "clean", "tail", "--out", "c", "--device", "cpu", "--workers", "1", "--cases", "12")
    assert (done.exit_code, done.stdout.splitlines()[0]) == (1, "DO NOT MERGE")
    assert call("compare", "c/before", "tail", "--out", "d", "--device", "cpu", "--workers", "1").exit_code == 1
    assert call("compare", "c/before", "c/after").exit_code == 1
    (before, after), (third, fourth), (fifth, _) = seen
    assert len(before) == 12
    assert before == after == third == fourth == fifth
