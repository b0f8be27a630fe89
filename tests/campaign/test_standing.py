"""How a campaign stands: read from its folder by somebody else, and shown while it runs."""

import io
import json
import math
import os
import socket
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from flashverify import cli
from flashverify.campaign.commands import status_line
from flashverify.campaign.commands.panel import panel_lines, status_text
from flashverify.campaign.commands.status import standing_of
from flashverify.campaign.commands.status_line import StatusLine
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.events import Finished, Progress, WorkerHealth
from flashverify.campaign.supervisor.live import SILENT_AFTER, Live, LiveFile, read_live
from flashverify.judge.record import Summary
from tests.campaign.test_engine import config
from tests.report.synthetic import explained, failing, result, write_run

WORKERS = (WorkerHealth(0, "judging", 2.5, 2**30, "0"), WorkerHealth(1, "explaining", 61.0, 2**29, "1"))


def progress(**changes):
    fields = {
        "elapsed": 3725.0,
        "cases": 600,
        "unsupported": 3,
        "errors": 0,
        "findings": 2,
        "restarts": 1,
        "rate": 16.4,
        "worst": {"o": 0.51, "lse": 0.33},
        "remaining": 75.0,
        "covering": 540,
        "since_new": 252.0,
        "workers": WORKERS,
    }
    return Progress(**(fields | changes))


def test_the_panel_says_all_in_80_columns():
    assert panel_lines(progress(), head="flashverify fuzz mine, seed 5", state="running") == [
        "flashverify fuzz mine, seed 5 · running",
        "time      1:02:05 gone · 1:15 left · 600 cases · 16.4/s",
        "coverage  540 covering (90 %) · 3 unsupported · 0 not judged",
        "worst     lse 0.33 o 0.51",
        "findings  2 · last new one 4:12 ago",
        "workers   1 explaining · 1 judging · quiet for 1:01 at most · 1.5 GiB · 1 lost",
        "gpus      0: 1 worker · 1: 1 worker",
    ]
    wide = progress(worst={f"output_{n}": 1 / 3 for n in range(20)}, explaining=1, explained=1, explaining_left=9.0)
    assert max(map(len, panel_lines(wide, head="x" * 200))) == 80
    assert max(map(len, panel_lines(wide, head="a\x1b[31m\nb", width=40))) == 40
    assert not any("\x1b" in line or "\n" in line for line in panel_lines(wide, head="a\x1b[31m\nb"))
    assert panel_lines(progress(findings=0, since_new=None, worst={}, cases=0, covering=0, workers=()))[-1].endswith(
        "none · 1 lost"
    )


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, seconds, *, term="xterm-256color", terminal=None, **variables):
    """What a status line writes that hears of progress five times a second, on a clock of its own."""
    now = [1000.0]
    stream = terminal if terminal is not None else Terminal()
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": term, "COLUMNS": "80", "LINES": "24", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(status_line.time, "monotonic", lambda: now[0])
    with StatusLine("flashverify fuzz mine, seed 5") as line:
        for number in range(5 * seconds):
            now[0] = 1000.0 + number / 5
            line(progress(cases=number))
        return stream.getvalue()


def test_the_panel_is_drawn_twice_a_second_at_most_and_over_itself(monkeypatch):
    text = shown(monkeypatch, 10)

    assert 10 <= text.count("coverage") <= 20
    assert "\x1b[2J" not in text, "the screen is never cleared"
    assert "\x1b[1A\x1b[2K" in text
    lines = text.replace("\r", "\n").splitlines()
    assert "flashverify fuzz mine, seed 5" in text
    assert max(len(line) for line in lines if "\x1b" not in line) <= 80


def test_no_color_means_none(monkeypatch):
    assert "\x1b[3" not in shown(monkeypatch, 2, NO_COLOR="1")


@pytest.mark.parametrize("term", ["dumb", "", "unknown"])
def test_a_dumb_terminal_gets_a_line_every_30_seconds(monkeypatch, term):
    text = shown(monkeypatch, 100, term=term)

    assert "\x1b" not in text
    assert len(text.splitlines()) == 3


def test_without_a_terminal_there_is_a_line_every_30_seconds(monkeypatch):
    text = shown(monkeypatch, 100, terminal=io.StringIO())

    assert text.splitlines()[0] == status_text(progress(cases=150))
    assert len(text.splitlines()) == 3


def live(folder, standing=None, **changes):
    """A word of a campaign in a folder."""
    LiveFile(folder)(standing or progress(worst={}))
    changed = msgspec.structs.replace(read_live(folder), **changes)
    (folder / "live.json").write_bytes(msgspec.json.encode(changed))


def call(*words):
    return CliRunner().invoke(cli.main, [str(word) for word in words])


def test_a_word_keeps_infinity_and_is_written_every_two_seconds(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("flashverify.campaign.supervisor.live.time.monotonic", lambda: now[0])
    note, written = LiveFile(tmp_path), set()
    for number in range(50):
        now[0] = number / 5
        note(progress(cases=number, worst={"o": math.inf}))
        written.add(read_live(tmp_path).progress.cases)
    assert written == {0, 10, 20, 30, 40}
    assert read_live(tmp_path).progress.worst == {"o": math.inf}
    note(Finished(Summary(50, 0, 50, 0, 0, 9.0, "budget", 0)))
    assert (read_live(tmp_path).over, read_live(tmp_path).progress.workers) == (True, ())


def test_a_disk_that_refuses_a_word_ends_no_campaign(tmp_path):
    LiveFile(tmp_path / "missing")(progress())


@pytest.mark.parametrize(
    ("changes", "runs"),
    [
        ({}, True),
        ({"over": True}, False),
        ({"pid": 2**22 + 1}, False),
        ({"host": "another"}, True),
        ({"host": "another", "updated": -2 * SILENT_AFTER}, False),
        ({"updated": -2 * SILENT_AFTER}, True),
    ],
)
def test_whether_a_campaign_goes_on(changes, runs):
    now = 1e9
    given = {"host": socket.gethostname(), "pid": os.getpid(), "updated": -10.0} | changes
    word = Live(progress(), **(given | {"updated": now + given["updated"]}))

    assert word.runs(now) is runs


def test_a_running_campaign_is_told_from_elsewhere(tmp_path):
    run = write_run(tmp_path / "run", (result(), failing()), (explained(),), summary=None)
    live(run)

    done = call("status", run)
    fields = json.loads(call("status", run, "--json").stdout)

    assert done.exit_code == fields["exit_code"] == 1
    assert done.stdout.splitlines()[0] == "flashverify fuzz kernel, seed 7 · running"
    assert "The causal mask is shifted by one" in done.stdout
    assert (fields["state"], fields["progress"]["cases"], fields["progress"]["since_new"]) == ("running", 600, 252.0)
    assert [worker["work"] for worker in fields["progress"]["workers"]] == ["judging", "explaining"]


def test_the_exit_code_is_that_of_the_run_or_says_that_it_is_gone(tmp_path):
    clean = write_run(tmp_path / "clean", (result(),), summary=None)
    live(clean, progress(findings=0, worst={}))
    assert (standing_of(clean).state, standing_of(clean).exit_code) == ("running", 0)
    live(clean, progress(findings=0, worst={}), host="another", updated=time.time() - 300)
    gone = call("status", clean)
    assert gone.exit_code == 3
    assert "gone, last word 5:00 ago" in gone.stdout
    for code in (0, 3, 130):
        over = write_run(tmp_path / str(code), (result(),), summary=Summary(1, 0, 1, 0, 0, 1.0, "budget", code))
        assert call("status", over).exit_code == code
        assert f"over (budget), exit code {code}" in call("status", over).stdout
    assert "worst     o 0.25" in call("status", over).stdout, "a run without a word is counted"


@pytest.mark.parametrize("name", ["missing", ""])
def test_a_folder_that_is_no_run_is_refused_in_one_line(tmp_path, name):
    done = call("status", tmp_path / name)

    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert "it is no run folder, it has no run.json" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_word_is_none(tmp_path):
    run = write_run(tmp_path / "run", (result(),), summary=None)
    for data in (b"{", b"[" * 10_000, b'{"progress": 3}', b"\xff"):
        (run / "live.json").write_bytes(data)
        assert standing_of(run).state == "gone"
    (run / "live.json").unlink()
    os.mkfifo(run / "live.json")
    assert standing_of(run).state == "gone"


@pytest.mark.slow
def test_a_campaign_leaves_word_of_its_workers(tmp_path, monkeypatch):
    heard = tmp_path / "heard"  # each part of the work goes on when the word of it is here
    heard.mkdir()
    monkeypatch.setenv("FAKE_HEARD", str(heard))

    def listen(event):
        for worker in event.workers if isinstance(event, Progress) else ():
            (heard / worker.work).touch()

    Engine(config(tmp_path / "run", "tail", max_cases=40), (listen,)).run()

    assert {"starting", "judging", "explaining"} <= {path.name for path in heard.iterdir()}
    standing = standing_of(tmp_path / "run")
    assert (standing.state, standing.progress.cases, standing.exit_code) == ("over", 40, 1)
    assert standing.progress.since_new is not None
    assert Path(tmp_path / "run/live.json").exists()
