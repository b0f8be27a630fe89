"""What the index of a run keeps is what its results say: with it and without it everything is the same."""

import os
import shutil

import msgspec
import pytest

from flashverify.campaign.store import disk
from flashverify.campaign.store.results import RESULTS, pieces
from flashverify.campaign.store.segments import INDEX, Segment, kept_segment
from flashverify.campaign.store.writer import RunStore, open_run
from flashverify.comparing import compare_runs
from flashverify.judge.verdict import Sampled, Status, Verdict
from flashverify.report import pieces as module
from flashverify.report.aggregate import Aggregate
from flashverify.report.content import build_report
from flashverify.report.json_report import render_json
from flashverify.report.stored_aggregate import pack_aggregate, unpack_aggregate
from tests.report.indexed import in_here, index, sealed_run
from tests.report.synthetic import campaign, result, stats


@pytest.fixture
def read(monkeypatch):
    """The numbers of the pieces that were parsed, in this process."""
    asked = []
    monkeypatch.setattr(module, "_asked", lambda folder, *piece: asked.append(piece[0]) or in_here(folder, *piece))
    return asked


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of some pieces with every kind of result, without an index."""
    odd = [
        result("fv1 seq_q=5", verdicts=(), warnings=("careful",)),
        result("fv1 seq_q=6", verdicts=(Verdict("accuracy", Status.ERROR, message="lost"),)),
        result("fv1 seq_q=7", sampled=Sampled(1, 2, 3, 4, ("dq",)), stats=(stats("o", float("nan")),)),
        result("no case", evidence="cpu", stats=(stats("o", float("inf")), stats("o", 0.5))),
    ]
    return sealed_run(tmp_path / "run", [*campaign(40), *odd, *campaign(40, seed=1)], monkeypatch)


def report(folder):
    opened = open_run(folder)
    return render_json(build_report(opened)), opened.problems


def test_an_aggregate_comes_back_as_it_was(run):
    whole = Aggregate.of(open_run(run).results())

    assert whole.failures
    assert whole.errors
    assert whole.warnings
    assert whole.sampled
    assert repr(unpack_aggregate(pack_aggregate(whole))) == repr(whole)  # NaN is not equal to itself


def test_a_report_is_the_same_with_an_index(run, read):
    count = len(pieces(run))
    first, _ = report(run)
    assert (count > 3, sorted(read)) == (True, list(range(count)))
    read.clear()
    again, _ = report(run)

    assert (again, read) == (first, [])
    shutil.rmtree(run / INDEX)
    assert report(run)[0] == first


def test_a_comparison_is_the_same_with_an_index(run, read, tmp_path, monkeypatch):
    changed = [msgspec.structs.replace(each, seconds=1.0) for each in campaign(40, defects=False)]
    changed += campaign(50, seed=1)[3:]
    other = sealed_run(tmp_path / "other", changed, monkeypatch)
    first = compare_runs(run, other)
    assert read
    read.clear()
    again = compare_runs(run, other)

    assert read == []
    assert (again.to_json(), again.to_html(), again.to_text()) == (first.to_json(), first.to_html(), first.to_text())
    assert first.newly_passing
    assert first.only_before
    assert first.only_after
    for folder in (run, other):  # one piece, which is parsed line by line
        shutil.rmtree(folder / INDEX)
    monkeypatch.setattr("flashverify.campaign.store.results.PIECE_BYTES", 1 << 24)
    assert compare_runs(run, other).to_json() == first.to_json()


def test_a_flipped_digit_in_a_kept_piece_costs_that_record(run, read):
    index(run)
    lines = (run / RESULTS).read_bytes().splitlines(keepends=True)
    lines[12] = lines[12].replace(b"dim_v=64", b"dim_v=65", 1)
    (run / RESULTS).write_bytes(b"".join(lines))
    found, problems = report(run)

    assert problems == ["results.jsonl: 1 damaged line(s) ignored"]
    assert (run / "results.jsonl.corrupt").exists()
    assert read == [0], "only the piece that holds other bytes is read"
    shutil.rmtree(run / INDEX)
    assert report(run)[0] == found


def cut(data):
    return data[: len(data) // 2]


def with_another_byte(data):
    """In the columns, which are bytes that any reader would accept."""
    at = data.index(Segment.unpacked(data).columns) + len(Segment.unpacked(data).columns) - 1
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def of_another_version(data):
    return msgspec.structs.replace(Segment.unpacked(data), version="0").packed()


def of_other_bytes(data):
    return msgspec.structs.replace(Segment.unpacked(data), digest=bytes(32)).packed()


@pytest.mark.parametrize("change", [cut, with_another_byte, of_another_version, of_other_bytes])
def test_a_segment_that_does_not_fit_is_made_anew(run, read, change):
    first, _ = report(run)
    path = run / INDEX / "000001.segment"
    path.write_bytes(change(path.read_bytes()))
    read.clear()

    assert report(run) == (first, [])
    assert read == [1]
    assert kept_segment(run, 1, pieces(run)[1]) is not None


def test_segments_in_another_order_and_of_another_run_are_made_anew(run, read, tmp_path, monkeypatch):
    first, _ = report(run)
    other = sealed_run(tmp_path / "other", campaign(60, seed=2), monkeypatch)
    index(other)
    kept = [run / INDEX / f"{number:06d}.segment" for number in range(3)]
    found = [path.read_bytes() for path in kept]
    for path, data in zip(kept, (found[1], found[0], (other / INDEX / kept[2].name).read_bytes()), strict=True):
        path.write_bytes(data)
    read.clear()

    assert report(run) == (first, [])
    assert sorted(read) == [0, 1, 2]


def test_a_piece_that_grew_is_read_again(run, read):
    report(run)
    read.clear()
    store = RunStore(run)
    store.append(result("fv1 seq_q=1000"))
    store.close()
    last = len(pieces(run)) - 1
    report(run)

    assert set(read) <= {last - 1, last}
    assert last in read


@pytest.mark.parametrize("place", ["folder", "file"])
def test_a_link_in_place_of_the_index_is_not_followed(run, read, tmp_path, place):
    outside = tmp_path / "outside"
    first, _ = report(run)
    shutil.move(run / INDEX, outside)
    (outside / "000000.segment").write_bytes(b"x")
    if place == "folder":
        (run / INDEX).symlink_to(outside)
    else:
        (run / INDEX).mkdir()
        (run / INDEX / "000000.segment").symlink_to(outside / "000000.segment")

    assert report(run) == (first, [])
    assert (outside / "000000.segment").read_bytes() == b"x"


class KilledError(BaseException):
    """A process dies."""


@pytest.mark.parametrize("step", ["make_folder", "create", "write", "move"])
def test_a_kill_or_a_full_disk_while_a_segment_is_kept_loses_nothing(run, read, monkeypatch, step):
    first, _ = report(run)
    for error in (OSError("full"), KilledError()):
        shutil.rmtree(run / INDEX)
        with monkeypatch.context() as patched:

            def fail(*_, error=error):
                raise error

            patched.setattr(disk, step, fail)
            try:
                index(run)
            except KilledError:
                assert isinstance(error, KilledError)
        RunStore(run).close()
        left = os.listdir(run / INDEX) if (run / INDEX).exists() else []
        assert [name for name in left if name.endswith(".tmp")] == []
        assert report(run) == (first, [])
