"""A segment is what was packed, of the bytes that are there, and no larger than a reader takes; any other is none."""

import msgspec
import pytest

from flashverify.campaign.store import segments
from flashverify.campaign.store.results import RESULTS, pieces
from flashverify.campaign.store.segments import (
    INDEX,
    Segment,
    any_repeated,
    has_segment,
    kept_segment,
    remove_unfinished_segments,
    split_marks,
    write_segment,
)
from tests.report.indexed import index, sealed_run
from tests.report.synthetic import campaign


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run with an index of some pieces."""
    found = sealed_run(tmp_path / "run", campaign(40), monkeypatch)
    index(found)
    return found


def kept(run, number=1):
    return kept_segment(run, number, pieces(run)[number])


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0"])
def test_what_is_too_short_for_a_checksum_is_no_segment(data):
    with pytest.raises(ValueError, match="it does not match its checksum"):
        Segment.unpacked(data)


def test_what_is_cut_or_changed_anywhere_is_no_segment(run):
    data = (run / INDEX / "000000.segment").read_bytes()
    assert Segment.unpacked(data) == kept(run, 0)

    for other in (data[:4], data[:-1], data + b"\0", b"\1" + data, bytes([data[0] ^ 1]) + data[1:]):
        with pytest.raises(ValueError, match="checksum"):
            Segment.unpacked(other)


def test_a_segment_as_large_as_may_be_is_read_and_a_larger_one_is_not(run, monkeypatch):
    size = (run / INDEX / "000001.segment").stat().st_size
    monkeypatch.setattr(segments, "_MAX_BYTES", size)
    assert kept(run) is not None

    monkeypatch.setattr(segments, "_MAX_BYTES", size - 1)
    assert kept(run) is None


def test_a_piece_is_read_to_its_end_in_blocks_of_any_size(run, monkeypatch):
    begin, end = pieces(run)[1]
    monkeypatch.setattr(segments, "_BLOCK", 1000)
    assert kept(run) is not None

    lines = bytearray((run / RESULTS).read_bytes())
    for at in (begin, begin + 1000, end - 1):
        changed = bytearray(lines)
        changed[at] ^= 1
        (run / RESULTS).write_bytes(changed)
        assert kept(run) is None, at
    (run / RESULTS).write_bytes(lines[: end - 1])
    assert kept_segment(run, 1, (begin, end)) is None, "the piece is shorter"


@pytest.mark.parametrize("change", [{"version": "0"}, {"piece": (0, 7)}, {"digest": bytes(32)}])
def test_a_segment_of_another_reader_or_of_another_piece_is_none(run, change):
    write_segment(run, 1, msgspec.structs.replace(kept(run), **change))

    assert kept(run) is None


def test_whatever_stands_there_is_there(run):
    assert has_segment(run, 1)
    assert not has_segment(run, 99)
    (run / INDEX / "000099.segment").symlink_to(run / "nothing")
    assert has_segment(run, 99)
    assert kept_segment(run, 99, pieces(run)[0]) is None


def test_a_link_in_place_of_a_segment_is_not_written_through(run):
    other, path = run / "other", run / INDEX / "000001.segment"
    segment = kept(run)
    path.rename(other)
    path.symlink_to(other)
    before = other.read_bytes()
    write_segment(run, 1, msgspec.structs.replace(segment, version="0"))

    assert path.is_symlink()
    assert other.read_bytes() == before


def test_unfinished_segments_are_removed_and_nothing_else(run):
    (run / INDEX / ".000001.segment.x.tmp").write_bytes(b"")
    (run / "y.tmp").write_bytes(b"")
    before = {path.name for path in (run / INDEX).glob("*.segment")}
    remove_unfinished_segments(run)

    assert {path.name for path in (run / INDEX).iterdir()} == before
    assert (run / "y.tmp").exists()


def test_marks_come_apart_and_a_line_of_two_pieces_is_seen():
    first, second = bytes(range(16)), bytes(range(16, 32))

    assert list(split_marks(first)) == [first[:8], first[8:]]
    assert not any_repeated([first, second])
    assert any_repeated([first, second + first[8:]])
    assert not any_repeated([])
