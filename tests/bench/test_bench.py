"""`flashverify bench`: what is counted and in which order; no time is asserted."""

import json
import math
import re

import pytest
import torch
from click.testing import CliRunner

from flashverify.bench import Measurement, Workload, as_json, as_text, workloads
from flashverify.bench.clock import interleaved
from flashverify.bench.command import bench_command
from flashverify.bench.limits import COPY, LIMITS, MATRIX, roofline
from flashverify.bench.picture import draw
from flashverify.bench.problems import problem_of
from flashverify.bench.rivals import flex_attention, sha256_of, triton_tutorial
from flashverify.bench.run import measure
from flashverify.bench.stored import change, earlier_run, store
from flashverify.bench.text import block_text
from flashverify.errors import UsageError
from flashverify.subjects import load_subject

SMALL = Workload(
    batch=2, heads_q=4, heads_kv=2, seq_q=3, seq_k=5, dim=16, dtype="fp32", causal=False, direction="forward"
)


def changed(**fields):
    return Workload(**{name: getattr(SMALL, name) for name in SMALL.__struct_fields__} | fields)


def measurement(*milliseconds, subject="a", workload=SMALL, reason=""):
    return Measurement(workload=workload, subject=subject, milliseconds=milliseconds, reason=reason)


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


def limited(*, product, copy, workload=SMALL):
    """Measurements of the limits: milliseconds of a product of 1e9 operations, and of a copy of the workload's K and V."""
    return {
        MATRIX: Measurement(workload=workload, milliseconds=(product,), subject=MATRIX, operations=1e9),
        COPY: measurement(copy, subject=COPY, workload=workload),
    }


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


def test_a_stored_run_is_compared_with(tmp_path):
    before = [measurement(*[4.0 + n / 100 for n in range(20)])]
    store(as_json(before, "this machine", {"a": "hash"}), tmp_path / "run.json")
    earlier = earlier_run(tmp_path / "run.json")
    assert earlier.machine == "this machine"
    assert list(tmp_path.iterdir()) == [tmp_path / "run.json"]
    faster = measurement(*[2.0 + n / 100 for n in range(20)])
    text = block_text([faster, measurement(1.0, subject="new")], earlier)
    assert "4.0950 ms before: 1.955 times as fast" in text
    assert text.count("before") == 1
    assert "noise" not in text
    assert "no change beyond the noise" in block_text(before, earlier)
    other = measurement(1.0, workload=changed(dim=32))
    assert "before" not in block_text([other], earlier)


def test_a_change_is_as_sure_as_both_medians():
    ratio = change(measurement(4.0, 5.0, 6.0), measurement(2.0, 2.5, 3.0))
    assert (ratio.median, ratio.low, ratio.high) == (2.0, 4.0 / 3.0, 6.0 / 2.0)


def on_the_cpu(*more):
    sizes = ["--lengths", "16", "--dims", "16", "--dtype", "fp32", "--batch", "1", "--heads", "2,2", "--rounds", "2"]
    return CliRunner().invoke(bench_command, ["--device", "cpu", *sizes, *more], standalone_mode=False)


def test_a_run_is_stored_compared_and_drawn(tmp_path):
    stored, picture = tmp_path / "run.json", tmp_path / "speeds.svg"
    done = on_the_cpu("--out", str(stored), "--picture", str(picture))
    assert done.exception is None
    assert len(json.loads(stored.read_text())["measurements"]) == 4 * 3
    assert "roofline, measured" in picture.read_text()
    done = on_the_cpu("--compare", str(stored))
    assert done.stdout.count(" before: ") == 4 * 3
    assert "another machine" not in done.stderr
    stored.write_text(stored.read_text().replace('"machine":"', '"machine":"not '))
    assert "another machine, not " in on_the_cpu("--compare", str(stored), "--pass", "forward").stderr


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("--compare", "{}", "--compare='.*' is not accepted: a file that"),
        ("--compare", None, "--compare='.*' cannot be read: No such file"),
        ("--picture", None, "--picture='.*' is not accepted: a file whose name ends with .svg or .png"),
        ("--tutorial", "x = 1", "--tutorial='.*' is not accepted: it defines no `attention`"),
        ("--tutorial", None, "--tutorial='.*' is not accepted: a Python file"),
    ],
)
def test_files_that_are_not_accepted_are_named(tmp_path, option, content, message):
    file = tmp_path / ("of_a_bench.py" if option == "--tutorial" else "file")
    if content is not None:
        file.write_text(content)
    done = on_the_cpu(option, str(file))
    assert isinstance(done.exception, UsageError)
    assert re.match(message, str(done.exception))
    assert "ms [" not in done.stdout


def test_a_folder_that_is_not_there_is_named_before_anything_is_timed(tmp_path):
    for option, name in (("--out", "run.json"), ("--picture", "a.png")):
        done = on_the_cpu(option, str(tmp_path / "none" / name))
        assert isinstance(done.exception, UsageError)
        assert f"{option}=" in str(done.exception)
        assert not done.stdout


def test_the_picture_has_a_panel_for_each_pass_and_mask(tmp_path):
    found = [
        item
        for causal in (False, True)
        for length in (16, 32)
        for work in [changed(causal=causal, seq_q=length, seq_k=length)]
        for item in (measurement(1.0, workload=work), *limited(product=1.0, copy=1e-9, workload=work).values())
    ]
    draw(found, tmp_path / "a.svg", machine="a machine")
    text = (tmp_path / "a.svg").read_text()
    assert [text.count(f">{title}<") for title in ("forward, fp32, D = 16, 4:2 heads", "a machine", "a")] == [1, 1, 1]
    assert text.count("forward, fp32, D = 16, causal") == 1
    decoding = [
        measurement(1.0, workload=changed(seq_k=1024)),
        *limited(product=1e-9, copy=1.0, workload=changed(seq_k=1024)).values(),
    ]
    draw(decoding, tmp_path / "b.svg", machine="a machine")
    assert "GB/s of K and V" in (tmp_path / "b.svg").read_text()
    assert "TFLOP/s" in text


TUTORIAL = """
import torch

def attention(q, k, v, causal, sm_scale):
    s = (q @ k.mT).float() * sm_scale
    s = s.masked_fill(~torch.ones_like(s, dtype=torch.bool).tril(), float("-inf")) if causal else s
    return s.softmax(-1).to(v.dtype) @ v
"""


@pytest.mark.parametrize(("arguments", "refused"), [(["Q"], True), (["Q", "CAUSAL"], False)])
def test_a_tutorial_whose_backward_is_causal_always_is_not_timed_without_a_mask(tmp_path, arguments, refused):
    file = tmp_path / f"a_tutorial_of_{len(arguments)}.py"
    file.write_text(f"{TUTORIAL}\nclass _attn_bwd:\n    arg_names = {arguments}\n")
    supports = triton_tutorial(str(file)).supports
    for causal, direction in ((False, "backward"), (True, "backward"), (False, "forward")):
        workload = changed(seq_q=128, seq_k=128, heads_kv=4, dtype="fp16", causal=causal, direction=direction)
        reason = supports.refusal(problem_of(workload, "cpu").case)
        expected = refused and direction == "backward" and not causal
        assert (reason == "the backward of this tutorial is causal always") == expected


def test_the_file_of_the_tutorial_is_called_as_the_tutorial_is_and_named_by_its_hash(tmp_path):
    file = tmp_path / "a_tutorial.py"
    file.write_text(TUTORIAL)
    made = triton_tutorial(str(file))
    workload = changed(seq_q=128, seq_k=128, heads_kv=4, dtype="fp16", causal=True, direction="backward")
    problem = problem_of(workload, "cpu")
    assert made.supports.refusal(problem.case) is None
    o = made.forward(problem).o
    expected = torch.nn.functional.scaled_dot_product_attention(problem.q, problem.k, problem.v, is_causal=True)
    torch.testing.assert_close(o, expected, atol=1e-2, rtol=0)
    assert as_json([], "machine", {"tutorial": sha256_of(str(file))})["sources"]["tutorial"][:4] == "0424"


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("causal", [False, True])
def test_flex_attention_computes_attention(causal, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    problem = problem_of(changed(causal=causal, seq_q=3, seq_k=5), "cpu")
    given = flex_attention("cpu").forward(problem).o
    hidden = torch.ones(3, 5, dtype=torch.bool).tril(2) if causal else None
    expected = torch.nn.functional.scaled_dot_product_attention(
        problem.q, problem.k, problem.v, attn_mask=hidden, enable_gqa=True
    )
    torch.testing.assert_close(given, expected)
