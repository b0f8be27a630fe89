"""Runs of `flashverify bench` in files: stored, compared, drawn."""

import json
import re

import pytest
from click.testing import CliRunner

from flashverify.bench import as_json
from flashverify.bench.command import bench_command
from flashverify.bench.picture import draw
from flashverify.bench.stored import change, earlier_run, store
from flashverify.bench.text import block_text
from flashverify.errors import UsageError
from tests.bench.workloads import changed, limited, measurement


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
