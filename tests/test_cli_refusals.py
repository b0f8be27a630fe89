"""What the command line refuses before it starts a worker, and the options that end a search."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from flashverify import cli
from flashverify.campaign import toolkit
from flashverify.campaign.store.writer import open_run


@pytest.fixture
def call(monkeypatch, tmp_path):
    """The command line over the toolkit without torch, on one worker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "campaign"))
    monkeypatch.setattr(toolkit, "BUNDLED", "fake_toolkit:toolkit")
    return lambda *arguments: CliRunner().invoke(cli.main, [*arguments, "--device", "cpu"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--subject", "mistyped", "--out", "r"),
        ("fuzz", "--subject", "mistyped", "--max-cases", "1", "--out", "r"),
        ("replay", "fv1", "--subject", "mistyped"),
        ("compare", "mistyped", "clean", "--out", "r"),
        ("compare", "clean", "mistyped", "--out", "r"),
    ],
)
def test_a_mistyped_subject_starts_no_worker(call, monkeypatch, arguments):
    from flashverify.campaign.supervisor import process

    def popen(command, *_rest, **_options):
        raise AssertionError(f"{command} was started")

    monkeypatch.setattr(process.subprocess, "Popen", popen)
    done = call(*arguments)

    assert (done.exit_code, "subject 'mistyped' is not known" in done.stderr) == (2, True), done.output
    assert not Path("r").exists()


@pytest.mark.parametrize("sides", [("no/such/run", "torch-cpu"), ("torch-cpu", "no/such/run")])
def test_a_run_that_does_not_exist_is_refused_before_anything_is_judged(tmp_path, monkeypatch, sides):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.main, ["compare", *sides, "--device", "cpu"])

    assert done.exit_code == 2
    assert "'no/such/run' is not accepted: it is no run folder, and subject 'no/such/run' is not known" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_options_reach_the_campaign(call):
    done = call(
        "fuzz",
        "--subject",
        "tail",
        "-x",
        "--no-shrink",
        "--out",
        "r",
        "--max-cases",
        "400",
        "--no-corpus",
        "--workers",
        "1",
        "--no-report",
    )

    assert done.stdout.splitlines()[0] == "FAIL: 1 finding; the search ended there, as asked"
    assert "not minimal: shrinking is switched off" in done.stdout
    assert open_run("r").summary.stopped == "findings"
    done = call(
        "fuzz",
        "--subject",
        "two",
        "--max-findings",
        "2",
        "--out",
        "s",
        "--max-cases",
        "400",
        "--no-corpus",
        "--workers",
        "1",
        "--no-report",
    )
    assert done.stdout.splitlines()[0] == "FAIL: 2 findings; the search ended there, as asked"


@pytest.mark.parametrize(
    ("subject", "code", "words"),
    [
        ("no-gpu", 3, "error: the subject could not run: it needs a GPU"),
        ("no-backward", 2, "Declare supports=Supports(backward=False)"),
    ],
)
def test_a_subject_that_cannot_run_is_no_failing_kernel(call, monkeypatch, subject, code, words):
    monkeypatch.setattr(toolkit, "BUNDLED", "tests.campaign.unable_toolkit:toolkit")
    done = call("run", "--subject", subject, "--out", "r", "--workers", "1", "--no-report")

    assert (done.exit_code, done.stdout) == (code, ""), done.output
    assert words in done.stderr
    assert "finding" not in done.stderr
    replayed = CliRunner().invoke(cli.main, ["replay", "fv1", "--subject", subject, "--device", "cpu"])
    assert (replayed.exit_code, replayed.stdout.splitlines()[0].split(":")[0]) == (3, "NO VERDICT")
    assert words.removeprefix("error: ") in replayed.stdout
