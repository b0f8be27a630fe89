"""The paper's curves: what is counted and timed, and that the page and its pictures are those of the stored record."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from curves_report import timing
from curves_report.counting import Sizes, counted, live_blocks
from curves_report.page import PAGE, page
from curves_report.pictures import medians, pictures
from curves_report.record import Point, Record, read

from flashverify.interpreter import faithful

ROOT = Path(__file__).resolve().parents[2]
RECORD = next(f for name in ("h200", "cpu") if (f := ROOT / "reports" / name / "curves/curves.json.xz").exists())
TINY = Sizes(dim=16, lengths=(32, 64), tiles=(16, 32), block_length=32, shares=(1.0, 0.25), share_length=64, tile=16)


@pytest.fixture(scope="module")
def points():
    with faithful():
        return counted(TINY)


def record(points, device="cpu", problems=None):
    return Record(
        device=device, environment={"gpu": "G"}, problems={"counted": "c"} | (problems or {}), points=list(points)
    )


def point(series, x, *values, quantity="ms", reason=""):
    return Point(
        curve="length", series=series, direction="forward", x=x, quantity=quantity, values=values, reason=reason
    )


def test_the_bundled_forward_reads_all_keys_for_each_tile_of_queries(points):
    found = medians(record(points), "block", "accesses", "forward")["bundled"]
    n, d = TINY.block_length, TINY.dim
    # Q and O once, LSE once, K and V once a tile
    assert found == {tile: 2 * n * d + n + 2 * n * d * (n // tile) for tile in TINY.tiles}


def test_every_curve_has_both_directions_of_every_series_at_every_place(points):
    for direction in ("forward", "backward"):
        lengths = medians(record(points), "length", "accesses", direction)
        assert set(lengths) == {"standard", "bundled", "paper-flash"}
        assert all(set(places) == set(TINY.lengths) for places in lengths.values())
        shares = medians(record(points), "share", "accesses", direction)["bundled"]
        assert sorted(shares) == [0.25, 1.0]


def test_a_dead_block_costs_the_forward_no_key_no_value_and_no_entry_of_a_list(points):
    found = medians(record(points), "share", "accesses", "forward")["bundled"]
    dead = 0.75 * (TINY.share_length / TINY.tile) ** 2
    assert found[1.0] - found[0.25] == dead * (2 * TINY.tile * TINY.dim + 1)


def test_a_smaller_share_is_a_part_of_a_larger_one():
    small, large = (live_blocks(8, 2, share) for share in (0.25, 0.5))
    assert (small & ~large).sum() == 0
    assert (small.float().mean().item(), large.float().mean().item()) == (0.25, 0.5)


def test_standard_attention_is_what_it_is_called():
    q, k, v = (torch.randn(1, 2, 9, 16, generator=torch.Generator().manual_seed(n)) for n in range(3))
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(timing.standard(q, k, v), right)


def test_what_has_no_room_has_a_reason_and_the_others_are_timed(monkeypatch):
    def no_room(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 GiB.")

    monkeypatch.setattr(timing, "standard", no_room)
    found = timing.by_length(timing.workload(1, 1, 8, 16), ("torch-cpu",), "cpu", clock=lambda call: call() is None or 800.0)  # fmt: skip
    assert [(x.series, x.direction, x.reason) for x in found if x.reason] == [
        ("standard", "forward", "out of memory"),
        ("standard", "backward", "out of memory"),
    ]
    assert [x.values for x in found if not x.reason] == [(800.0,) * 3] * 2


def test_blocks_and_shares_are_timed_forward_and_backward():
    with faithful():
        found = timing.by_block(timing.workload(1, 1, 16, 16), (16,), "cpu")
        found += timing.by_share(timing.workload(1, 1, 32, 16), 16, (0.5,), "cpu")
    assert [(x.curve, x.direction, x.x, bool(x.values), x.reason) for x in found] == [
        (curve, direction, x, True, "") for curve, x in (("block", 16), ("share", 0.5)) for direction in ("forward", "backward")
    ]  # fmt: skip


def test_the_page_says_how_many_times_more_standard_attention_takes_and_where_it_has_no_room():
    places = [
        point("standard", 128, 1.0, 9.0, 3.0),
        point("bundled", 128, 1.5),
        point("standard", 2048, reason="out of memory"),
        point("bundled", 2048, 150.0),
        point("bundled", 2048, 3.0 * 2**20, quantity="bytes"),
    ]
    text = page(record(places, "cuda", {"length": "fp16"}))
    assert "| 128 | 3 | 1.5 | 2.00 |" in text
    assert "`standard` takes up to 2.0 times as much as `bundled`, at 128 tokens." in text
    assert "| 2k | out of memory | 150 | – |" in text
    assert "peak memory, MiB.\n\n| tokens | bundled |\n|--:|--:|\n| 2k | 3 |" in text
    assert "Timed: fp16." in text
    assert "one G." in text
    assert "out of memory" not in pictures(record(places))["images/curves_length.svg"]


def test_the_page_and_its_pictures_are_those_of_the_stored_record():
    stored = read(RECORD)
    again = "run benchmarks/curves.py --from " + str(RECORD.relative_to(ROOT))
    assert (ROOT / "docs" / PAGE).read_text(encoding="utf-8") == page(stored), again
    drawn = pictures(stored)
    assert len(drawn) == 3
    for name, text in drawn.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, again
    assert ("This is a record of a CPU" in page(stored)) == (stored.device == "cpu")


@pytest.mark.slow
@pytest.mark.thorough
def test_the_command_counts_and_writes_everything(tmp_path):
    sizes = '{"dim": 16, "lengths": [16], "tiles": [16], "block_length": 16, "shares": [1.0], "share_length": 16, "tile": 16}'
    words = ("--device", "cpu", "--sizes", sizes, "--out", str(tmp_path / "own"), "--docs", str(tmp_path / "docs"))
    script = str(ROOT / "benchmarks/curves.py")
    done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = read(tmp_path / "own/curves.json.xz")
    assert {x.curve for x in found.points} == {"length", "block", "share"}
    assert (tmp_path / "docs" / PAGE).read_text(encoding="utf-8") == page(found)
