"""Exit code 1 says that there is a finding, whatever became of the streams, the disk and the arguments of a command."""

import os
import signal
import subprocess
import sys

import pytest

from flashverify.campaign.commands.signals import ending_signals
from flashverify.campaign.store.results import RESULTS

COMMAND = """
import errno, os, sys
import click
from flashverify.campaign.commands.program import Program

@click.group("flashverify", cls=Program)
def main(): pass

@main.command()
@click.option("--lines", type=int, default=1)
@click.option("--code", type=int, default=0)
@click.option("--text", default="words")
@click.option("--opened", default="")
@click.option("--fails", default="")
def say(lines, code, text, opened, fails):
    if opened:
        with open(opened, "w") as file:
            print(text, flush=True)
            os.write(2, b"from a library")
            file.write(str(file.fileno()))
    if fails == "disk":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "run/file")
    if fails:
        raise KeyError("dq")
    for _ in range(lines):
        print(text)
    print("progress", file=sys.stderr)
    return code

main()
"""


def start(*words, **options):
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([sys.executable, "-c", COMMAND, "say", *words], **given)


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_reader_that_went_away_changes_no_exit_code(code):
    process = start("--lines", "100000", "--code", str(code))
    process.stdout.close()
    process.stderr.close()
    assert process.wait(30) == code


@pytest.mark.parametrize(("code", "told"), [(0, 3), (1, 1)])
def test_a_full_disk_below_stdout_is_told_and_no_verdict(code, told):
    with open("/dev/full", "w") as full:
        process = start("--code", str(code), stdout=full)
    said = process.communicate(timeout=30)[1].decode()
    assert process.returncode == told
    assert ("what was to be printed is lost: [Errno 28] No space left on device" in said) == (told == 3)
    assert "Traceback" not in said


def test_a_file_never_takes_the_place_of_a_closed_stream(tmp_path):
    process = start("--opened", tmp_path / RESULTS, preexec_fn=lambda: [os.close(n) for n in (0, 1, 2)])
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert int((tmp_path / RESULTS).read_text(encoding="utf-8")) > 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((b"--text", b"\xff"), 2, r"flashverify: error: argument '\udcff' is not accepted: text in UTF-8"),
        (("--fails", "disk"), 3, "flashverify: error: OSError: [Errno 28] No space left on device: 'run/file'"),
        (("--fails", "key"), 3, "flashverify: error: flashverify itself failed: KeyError: 'dq'"),
    ],
)
def test_what_is_no_finding_has_another_code(words, code, said):
    process = start(*words)
    error = process.communicate(timeout=30)[1].decode()
    assert (process.returncode, error.splitlines()[0]) == (code, said)
    assert len(error.splitlines()) == 1 or "key" in words


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_a_campaign_after_a_flush(number, code):
    told = []
    before = signal.signal(number, signal.SIG_DFL)  # the tests may run under nohup
    try:
        with ending_signals(told.append):
            os.kill(os.getpid(), number)
    finally:
        signal.signal(number, before)
    assert told == [code]


def test_a_campaign_under_nohup_lives_on():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_signals(pytest.fail):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
