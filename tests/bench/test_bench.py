"""`flashverify bench`: what is counted and in which order; no time is asserted."""

import json
import math

import pytest
from click.testing import CliRunner

from flashverify.bench import Workload, as_json, as_text, workloads
from flashverify.bench.clock import interleaved
from flashverify.bench.command import bench_command
from flashverify.bench.limits import LIMITS, roofline
from flashverify.bench.problems import problem_of
from flashverify.bench.run import measure
from flashverify.bench.text import block_text
from flashverify.errors import UsageError
from flashverify.subjects import load_subject
from tests.bench.workloads import SMALL, changed, limited, measurement


@pytest.mark.parametrize(
    ("workload", "pairs"),
    [
        (SMALL, 15),
        (changed(causal=True), 3 + 4 + 5),  # the last query sees all keys
        (changed(seq_q=4, seq_k=4, causal=True), 10),
        (changed(seq_q=4, seq_k=2, causal=True), 0 + 0 + 1 + 2),
    ],
)
def test_operations_count_the_visible_pairs(workload, pairs):
    assert workload.operations == 2 * 4 * pairs * 16 * 4
    backward = Workload(**{n: getattr(workload, n) for n in workload.__struct_fields__} | {"direction": "backward"})
    assert backward.operations == workload.operations * 2.5


def test_bytes_are_those_of_k_and_v():
    problem = problem_of(SMALL, "cpu")
    assert SMALL.bytes == problem.k.nbytes + problem.v.nbytes


def test_the_median_is_that_of_the_rounds():
    assert measurement(3.0, 1.0, 2.0).median == 2.0
    assert measurement(4.0, 1.0, 2.0, 3.0).median == 2.5
    assert math.isnan(measurement(reason="refused").median)


def test_rounds_are_interleaved_after_the_warmup():
    order = []
    calls = {name: (lambda name=name: order.append(name)) for name in "ab"}
    ticks = iter(range(100))

    def clock(call):
        call()
        return float(next(ticks))

    assert interleaved(calls, clock, rounds=3, warmup=2) == {"a": (0.0, 2.0, 4.0), "b": (1.0, 3.0, 5.0)}
    assert order == list("aabb" + "ab" * 3)


def test_the_default_sizes_hold_the_number_of_tokens_and_channels():
    found = workloads(lengths=(4096, 32768), dims=(64, 128))
    assert len(found) == 16
    assert {(w.batch, w.seq_k) for w in found} == {(4, 4096), (1, 32768)}
    assert {(w.heads_q, w.dim) for w in found} == {(32, 64), (16, 128)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtypes": ("fp64",)}, "dtype='fp64' is not accepted"),
        ({"masks": ("tree",)}, "mask='tree' is not accepted"),
        ({"passes": ("sideways",)}, "pass='sideways' is not accepted"),
        ({"lengths": (0,)}, "length=0 is not accepted"),
        ({"dims": (-8,)}, "dim=-8 is not accepted"),
    ],
)
def test_sizes_that_are_not_accepted_are_named(options, message):
    with pytest.raises(UsageError, match=message):
        workloads(**({"lengths": (16,), "dims": (16,)} | options))


def test_a_subject_that_refuses_the_workload_is_listed_with_its_reason():
    half = changed(dtype="fp16", heads_kv=4, seq_q=5)
    torch_math = load_subject("sdpa-math")  # fp32 alone
    torch_cpu = load_subject("torch-cpu")
    found = measure([torch_cpu, torch_math], half, lambda call: [call(), 1.0][1], device="cpu", rounds=2, warmup=1)
    assert [item.subject for item in found] == ["torch-cpu", "sdpa-math", *LIMITS]
    assert [len(item.milliseconds) for item in found] == [2, 0, 2, 2]
    assert "dtype=fp16" in found[1].reason
    text = as_text(found)
    assert "not measured: dtype=fp16" in text
    assert "of the roofline" in text


def test_the_table_gives_ratios_of_the_first_subject():
    text = as_text([measurement(2.0), measurement(3.0, subject="b")])
    assert text.startswith(str(SMALL))
    assert "a is 1.50 times as fast" in text


def test_the_json_holds_every_round():
    (row,) = as_json([measurement(2.0, 4.0)], "machine")["measurements"]
    assert row["milliseconds"] == [2.0, 4.0] or row["milliseconds"] == (2.0, 4.0)
    assert row["median_ms"] == 3.0
    assert row["kv_gb_per_s"] == pytest.approx(SMALL.bytes / 3.0 / 1e6)


def test_the_command_times_a_subject_on_the_cpu():
    arguments = [
        "--device",
        "cpu",
        "--lengths",
        "16",
        "--dims",
        "16",
        "--dtype",
        "fp32",
        "--batch",
        "1",
        "--heads",
        "2,2",
        "--rounds",
        "2",
        "--json",
    ]
    done = CliRunner().invoke(bench_command, arguments, standalone_mode=False)
    assert done.exception is None
    rows = json.loads(done.stdout)["measurements"]
    assert {row["subject"] for row in rows} == {"torch-cpu", *LIMITS}
    assert all(len(row["milliseconds"]) == 2 for row in rows)


def test_the_roofline_is_the_slower_of_products_and_bytes():
    products = SMALL.operations * 2.0 / 1e9
    bytes_ = SMALL.traffic / SMALL.bytes * 3.0
    assert roofline(SMALL, limited(product=2.0, copy=1e-12)) == pytest.approx(products)
    assert roofline(SMALL, limited(product=1e-12, copy=3.0)) == pytest.approx(bytes_)
    assert math.isnan(roofline(SMALL, {}))


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_traffic_counts_every_tensor_of_a_pass_once(direction):
    workload = changed(direction=direction)
    problem = problem_of(workload, "cpu")
    inputs = problem.q.nbytes + problem.k.nbytes + problem.v.nbytes
    o, lse = problem.q.nbytes, 4 * 2 * 4 * 3
    moved = inputs + o + lse if direction == "forward" else inputs + 2 * o + lse + inputs
    assert workload.traffic == moved


def test_the_share_of_the_roofline_stands_beside_each_subject():
    group = [measurement(2.0), *limited(product=1e-12, copy=1.0).values()]
    limit = SMALL.traffic / SMALL.bytes
    assert f"{limit / 2:.0%} of the roofline" in block_text(group)
    assert "roofline" not in block_text(group[:1])
    rows = as_json(group, "machine")["measurements"]
    assert [row.get("roofline_share") for row in rows] == [pytest.approx(limit / 2), None, None]
