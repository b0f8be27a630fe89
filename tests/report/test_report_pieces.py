"""A large run is added up in pieces, by processes beside each other; what is not sound is left out."""

import pytest

from flashverify.campaign.store import results as stored
from flashverify.campaign.store.results import RESULTS, pieces
from flashverify.campaign.store.writer import RunStore, open_run
from flashverify.judge.verdict import Status, Verdict
from flashverify.report import pieces as module
from flashverify.report.aggregate import Aggregate
from flashverify.report.pieces import aggregate_of
from tests.report.indexed import in_here
from tests.report.synthetic import MASKS, failing, header, result, stats

SIZE = 4000


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The folder of a run over some pieces; its sums are exact in any order."""
    monkeypatch.setattr(stored, "PIECE_BYTES", SIZE)
    store = RunStore(tmp_path / "run")
    store.write_header(header(sealed=True))
    refused = (Verdict("supports", Status.UNSUPPORTED, message="no"),)
    for number in range(60):
        case = f"fv1 seq_q={number + 1} dtype={('fp16', 'bf16')[number % 2]}{MASKS[number % 4]}"
        own = (stats("o", number / 64, (0, 0, number // 2, 0)), stats("dk", 0.5, mode="conditional"))
        store.append(result(case, stats=own, warnings=("careful",) * (number % 7 == 0)))
        store.append(failing(case, "other", ("dq", "o")[number % 2], ratio=2.0 + number % 5))
    store.append(result("fv1 seq_q=99", verdicts=refused, stats=()))
    store.close()
    return tmp_path / "run"


def test_pieces_are_whole_lines_and_everything(run, monkeypatch):
    data, found = (run / RESULTS).read_bytes(), pieces(run)

    assert len(found) > 3
    assert b"".join(data[begin:end] for begin, end in found) == data
    assert all(data[end - 1 : end] == b"\n" for _, end in found)
    monkeypatch.setattr(stored, "PIECE_BYTES", len(data) // 2 + 1)
    assert pieces(run) == []


def test_the_pieces_together_are_the_whole(run, monkeypatch):
    monkeypatch.setattr(stored, "PIECE_BYTES", (run / RESULTS).stat().st_size // 3)  # three processes
    whole = Aggregate.of(open_run(run).results())

    assert aggregate_of(open_run(run)) == whole
    assert (whole.judged, len(whole.failures), whole.warnings) == (120, 2, {"careful": 9})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("repeat", "1 repeated line(s) ignored"),
        ("repeat at once", "1 repeated line(s) ignored"),
        ("flip", "1 damaged line(s) ignored"),
    ],
)
def test_what_is_not_sound_is_left_out_and_told(run, monkeypatch, change, problem):
    lines = (run / RESULTS).read_bytes().splitlines(keepends=True)
    lines[-1:] = {
        "repeat": [lines[0]],
        "repeat at once": [lines[-2]],
        "flip": [lines[-1].replace(b"seq_q=99", b"seq_q=98")],
    }[change]
    (run / RESULTS).write_bytes(b"".join(lines))
    asked = []
    monkeypatch.setattr(module, "_asked", lambda folder, *piece: asked.append(piece) or in_here(folder, *piece))
    opened = open_run(run)

    assert aggregate_of(opened).judged == 120
    assert len(asked) > 3
    assert opened.problems == [f"results.jsonl: {problem}"]
