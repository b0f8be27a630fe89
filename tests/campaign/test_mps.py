"""Workers share a GPU by a service that starts with the campaign and ends with it, and with a worker that dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flashverify.campaign.commands.settings import Settings
from flashverify.campaign.commands.where import here, in_cluster
from flashverify.campaign.store.reader import open_run
from flashverify.campaign.store.stats import Stats, read_stats, stats_sentence
from flashverify.campaign.supervisor import mps
from flashverify.campaign.supervisor.events import WorkerLost
from flashverify.campaign.supervisor.mps import Mps, control_program, own_context
from flashverify.errors import UsageError
from tests.campaign.test_engine import campaign

PROGRAM = """#!/bin/sh
echo "$1 ${CUDA_VISIBLE_DEVICES-all}" >> {log}
[ "$1" = -d ] || { read -r order; echo "$order" >> {log}; }
exit {code}
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A pretended service that notes what it is told, and clients that work."""
    monkeypatch.setattr(mps, "_CLIENT", "")
    return pretended(tmp_path)


def pretended(folder, code=0):
    path = folder / "nvidia-cuda-mps-control"
    text = PROGRAM.replace("{log}", str(folder / "log")).replace("{code}", str(code))
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def told(folder):
    return (folder / "log").read_text(encoding="utf-8").splitlines()


def test_the_service_starts_once_with_all_gpus_and_is_told_to_quit(tmp_path, monkeypatch, program):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    service = Mps(program)
    first, second = service.variables(), service.variables()
    folder = first["CUDA_MPS_PIPE_DIRECTORY"]

    assert first == second == {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    assert (service.shared, service.problem, told(tmp_path)) == (True, "", ["-d all"])
    service.close()
    assert told(tmp_path) == ["-d all", " all", "quit -t 2"]
    assert not Path(folder).exists()
    assert (service.shared, service.variables()) == (False, {})


def test_a_service_whose_daemon_or_client_fails_is_none(tmp_path, monkeypatch, program):
    monkeypatch.setattr(mps, "_CLIENT", "raise SystemExit('CUDA error 805')")
    (tmp_path / "other").mkdir()
    clients_fail, does_not_start = Mps(program), Mps(pretended(tmp_path / "other", code=1))

    assert clients_fail.variables() == does_not_start.variables() == {}
    assert clients_fail.problem.endswith("context of its own: MPS does not work here: CUDA error 805")
    assert "-d did not start" in does_not_start.problem
    assert not clients_fail.shared
    assert "quit -t 2" in told(tmp_path)


def test_the_real_client_needs_a_driver(tmp_path, monkeypatch):
    monkeypatch.setattr(mps, "_CLIENT", mps._CLIENT.replace("libcuda.so.1", "libcuda-of-nobody.so.1"))
    service = Mps(pretended(tmp_path))

    assert service.variables() == {}
    assert "libcuda-of-nobody.so.1" in service.problem


def test_a_machine_with_a_service_gets_no_second_one(tmp_path, program):
    path = {"PATH": str(Path(program).parent)}
    assert control_program(path, tmp_path / "none") == program
    assert control_program(path | {"CUDA_MPS_PIPE_DIRECTORY": "/somewhere"}, tmp_path / "none") is None
    assert control_program(path, Path(program)) is None


def test_a_service_ends_with_a_process_that_is_killed(tmp_path, program):
    code = f"""
import time
from flashverify.campaign.supervisor import mps
mps._CLIENT = ""
service = mps.Mps({program!r})
print(service.variables(), flush=True)
time.sleep(60)
"""
    process = subprocess.Popen((sys.executable, "-c", code), stdout=subprocess.PIPE)
    assert b"CUDA_MPS_PIPE_DIRECTORY" in process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()

    end = time.monotonic() + 10
    while "quit -t 2" not in told(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert told(tmp_path)[-1] == "quit -t 2"


@pytest.mark.slow
def test_workers_share_until_one_dies_and_none_of_their_cases_is_lost(tmp_path, monkeypatch, program):
    monkeypatch.setenv("FAKE_FLAG", str(tmp_path / "flag"))
    monkeypatch.setattr("flashverify.campaign.supervisor.gpu.control_program", lambda environ: program)
    summary, events = campaign(tmp_path / "run", "tells-mps", device="cuda", mps=True, max_cases=120, batch=20)
    (lost,) = [e for e in events if isinstance(e, WorkerLost)]
    evidence = [r.evidence for r in open_run(tmp_path / "run").results()]

    assert (summary.exit_code, summary.cases, summary.findings, summary.restarts) == (0, 120, 0, 1)
    assert "each worker has a context of its own; its case is judged again, alone" in lost.reason
    assert len({r.case for r in open_run(tmp_path / "run").results()}) == 120
    shared, first = set(evidence) - {"none"}, evidence.index("none")
    assert len(shared) == 1
    assert first > 0
    assert set(evidence[first:]) == {"none"}
    assert not read_stats(tmp_path / "run").mps
    assert told(tmp_path)[-1] == "quit -t 2"


@pytest.mark.thorough
def test_a_service_that_lasted_starts_again_and_the_case_of_the_death_has_a_context_of_its_own(
    tmp_path, monkeypatch, program
):
    monkeypatch.setenv("FAKE_FLAG", str(tmp_path / "flag"))
    monkeypatch.setattr(mps, "_LASTING", 0.0)
    monkeypatch.setattr("flashverify.campaign.supervisor.gpu.control_program", lambda environ: program)
    summary, events = campaign(tmp_path / "run", "tells-mps", device="cuda", mps=True, max_cases=120, batch=20)
    (lost,) = [e for e in events if isinstance(e, WorkerLost)]
    evidence = {r.case: r.evidence for r in open_run(tmp_path / "run").results()}

    assert (summary.exit_code, len(evidence), summary.restarts) == (0, 120, 1)
    assert "those that shared its context start again; its case is judged again, alone" in lost.reason
    assert [case for case, told in evidence.items() if told == "none"] == [lost.case]
    assert len(set(evidence.values())) == 3, "one service, then another"
    assert told(tmp_path).count("quit -t 2") == 2
    assert read_stats(tmp_path / "run").mps


def test_what_a_worker_starts_is_no_client_of_a_campaign(tmp_path, program):
    service = Mps(program)
    own = {"CUDA_MPS_PIPE_DIRECTORY": "/of/the/machine", "CUDA_MPS_LOG_DIRECTORY": "/logs", "HOME": "/h"}

    assert own_context(service.variables() | {"HOME": "/h"}) == {"HOME": "/h"}
    assert own_context(own) == own
    service.close()


@pytest.mark.thorough
def test_without_a_death_all_share_and_the_counts_say_so(tmp_path, monkeypatch, program):
    monkeypatch.setattr("flashverify.campaign.supervisor.gpu.control_program", lambda environ: program)
    campaign(tmp_path / "run", "clean", device="cuda", mps=True, max_cases=40)

    assert told(tmp_path) == ["-d all", " all", "quit -t 2"]
    assert read_stats(tmp_path / "run").mps
    assert "They shared each GPU by MPS." in stats_sentence(Stats(seconds=1.0, workers=2, mps=True))
    assert "MPS" not in stats_sentence(Stats(seconds=1.0, workers=2))


def test_sharing_is_for_several_workers_of_a_gpu(monkeypatch):
    monkeypatch.setattr("flashverify.campaign.environment.resolve_device", lambda asked: asked)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    chosen = [
        here("fuzz", Settings(device=device, workers=workers, mps=asked), ("standard",)).mps
        for device, workers, asked in (("cuda", 4, None), ("cuda", 4, False), ("cuda", 2, True), ("cpu", 4, None))
    ]
    assert chosen == [True, False, False, False]
    with pytest.raises(UsageError, match="--mps is not accepted: the subjects do not run on a GPU"):
        here("fuzz", Settings(device="cpu", mps=True), ("standard",))
    with pytest.raises(UsageError, match="--mps is not accepted with --engine ray"):
        in_cluster("fuzz", Settings(engine="ray", mps=True), ("standard",), Path("out"))
