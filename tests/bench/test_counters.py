"""`flashverify bench --counters`: what is read of the profiler's table and said of it. The table is of an H200."""

import os
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from flashverify.bench import counters, session
from flashverify.bench.command import bench_command
from flashverify.bench.counters import PROFILER, check_profiler, counters_of, kernels_in, profiled_command
from flashverify.bench.limiter import kernel_text, limiter
from flashverify.bench.records import KernelCounters, Measurement
from flashverify.bench.text import block_text
from flashverify.errors import NoVerdictError, UsageError
from tests.bench.workloads import SMALL, changed, measurement

TABLE = Path(__file__).with_name("counters.csv").read_text()
KERNELS = kernels_in(TABLE.splitlines())


def profiler(folder, monkeypatch, script):
    """A program on the PATH by the name of the profiler."""
    file = folder / PROFILER
    file.write_text("#!/bin/sh\n" + script)
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def kernel(**changes):
    return msgspec.structs.replace(KERNELS[0], **changes)


def test_kernels_are_read_in_the_order_of_their_launches():
    assert [k.name for k in KERNELS] == ["delta_kernel", "dq_kernel", "hopper_dkdv_kernel"]
    dkdv = KERNELS[2]
    assert (dkdv.registers, dkdv.threads, dkdv.programs, dkdv.shared_bytes, dkdv.spills) == (168, 384, 4096, 83432, 0)
    assert dkdv.microseconds == pytest.approx(2298.5, abs=0.1)
    assert dkdv.units["tensor cores"] == pytest.approx(0.495, abs=0.001)
    assert sum(dkdv.stalls.values()) == pytest.approx(1)
    assert max(dkdv.stalls, key=dkdv.stalls.get) == "barrier"


def test_a_metric_that_the_gpu_lacks_is_zero():
    lines = [line.replace("sm__pipe_tensor_cycles_active", "sm__no_such_metric") for line in TABLE.splitlines()]
    assert all(k.units["tensor cores"] == 0 for k in kernels_in(lines))


def test_a_table_without_kernels_is_empty():
    assert kernels_in(["==ERROR== nothing", '"a","b"', '"1","2"']) == ()
    assert kernels_in([]) == ()


@pytest.mark.parametrize(("busy", "said"), [(0.59, "latency"), (0.6, "FMA"), (0.9, "FMA")])
def test_a_unit_limits_a_kernel_from_three_fifths_of_its_peak_on(busy, said):
    assert limiter(kernel(units={"tensor cores": 0.3, "FMA": busy})) == said


def test_the_line_of_a_kernel_leaves_out_warps_that_wait_for_nothing():
    text = kernel_text(kernel(stalls={"selected": 0.5, "not_selected": 0.3, "gmma": 0.2}, spills=3))
    assert "warps wait for a matrix product 20%;" in text
    assert "3 spills" in text
    assert "spills" not in kernel_text(kernel(spills=0))


def test_kernels_stand_below_their_subject():
    first = msgspec.structs.replace(measurement(2.0), kernels=KERNELS[1:])
    lines = block_text([first]).splitlines()
    assert [line.strip().split(":")[0] for line in lines[2:]] == ["dq_kernel", "hopper_dkdv_kernel"]
    assert "limited by tensor cores; tensor cores 70%" in lines[2]
    assert "limited by latency; L1 and shared memory 51%, tensor cores 49%" in lines[3]


def test_counters_are_stored_with_the_measurement():
    there = msgspec.structs.replace(measurement(2.0), kernels=KERNELS)
    assert msgspec.json.decode(msgspec.json.encode(there), type=Measurement) == there
    assert isinstance(there.kernels[0], KernelCounters)


def test_the_profiled_process_gets_the_subject_and_the_workload():
    command = profiled_command("mine.py:SUBJECT", SMALL, "")
    assert command[0] == PROFILER
    given = msgspec.json.decode(command[-1])
    assert given["subject"] == "mine.py:SUBJECT"
    assert msgspec.convert(given["workload"], type=type(SMALL)) == SMALL


def test_counters_come_from_the_profiler(tmp_path, monkeypatch):
    (tmp_path / "table").write_text(TABLE)
    profiler(tmp_path, monkeypatch, f"echo 'a subject may print' && cat {tmp_path}/table\n")
    assert counters_of("bundled", SMALL) == KERNELS


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'", "ERR_NVGPUCTRPERM"),
        ("echo '==ERROR== Failed to find x'; echo '==ERROR== The application returned an error code (9)'", "find x"),
        ("exit 7", "ended with 7"),
    ],
)
def test_a_profiler_that_reads_nothing_is_said(tmp_path, monkeypatch, script, said):
    profiler(tmp_path, monkeypatch, script + "\n")
    with pytest.raises(NoVerdictError, match=said):
        counters_of("bundled", SMALL)


def test_a_profiler_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(counters, "_SECONDS", 0.2)
    profiler(tmp_path, monkeypatch, "exec sleep 60\n")
    with pytest.raises(NoVerdictError, match="read nothing of bundled in"):
        counters_of("bundled", SMALL)


def test_counters_need_the_profiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=f"no '{PROFILER}' on the PATH"):
        check_profiler()


def test_counters_are_those_of_a_gpu():
    result = CliRunner().invoke(bench_command, ["--counters", "--device", "cpu"], standalone_mode=False)
    assert isinstance(result.exception, UsageError)
    assert "--counters is not accepted with --device=cpu" in str(result.exception)


def test_a_bench_reads_the_counters_of_each_subject_that_was_timed(monkeypatch):
    asked, work = [], changed(dtype="fp32", heads_q=SMALL.heads_kv)
    monkeypatch.setattr(session, "check_profiler", lambda: asked.append("profiler"))
    monkeypatch.setattr(session, "counters_of", lambda spec, what, _file: asked.append((spec, what)) or KERNELS)

    found = session.bench(("torch-cpu",), [work], device="cpu", rounds=1, warmup=1, counters=True)
    plain = session.bench(("torch-cpu",), [work], device="cpu", rounds=1, warmup=1)

    assert [each.kernels for each in found] == [KERNELS, (), ()]  # not of the device's limits
    assert asked == ["profiler", ("torch-cpu", work)]
    assert not any(each.kernels for each in plain)
