"""A run that goes on counts the same with an index of its results and without one; the index grows while a run judges."""

import time
from collections import Counter
from types import SimpleNamespace

import msgspec
import pytest

from flashverify.campaign.store import results, resume
from flashverify.campaign.store.notes import Claims
from flashverify.campaign.store.results import RESULTS, pieces
from flashverify.campaign.store.segments import INDEX, has_segment, kept_segment, segment_command
from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor import indexing
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.indexing import Indexing
from flashverify.campaign.supervisor.journal import Journal
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.campaign.supervisor.tally import Tally
from tests.campaign.notes import Notes
from tests.campaign.test_engine import config
from tests.campaign.test_interrupted import interrupted
from tests.report.indexed import in_here, index, sealed_run
from tests.report.synthetic import campaign

SUBJECTS = ("flashverify.prefill", "my.module:attention")
ORIGINS = ("batch 0", "batch 1", "batch 2", "batch 5", "corpus my.module:attention", "compiled flashverify.prefill", "")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A search of some pieces without an index: batches, of which one is open and one is not noted, a list, and others."""
    monkeypatch.setattr(resume, "_STEPS", ((20, 1), (70, 5), (float("inf"), 10)))
    marked = [
        msgspec.structs.replace(each, origin=ORIGINS[number % len(ORIGINS)])
        for number, each in enumerate((*campaign(50), *campaign(50, seed=1)))
    ]
    return sealed_run(tmp_path / "run", marked, monkeypatch, subjects=SUBJECTS)


def resumed(folder):
    """What a resumed campaign knows, and how many results it read."""
    config = CampaignConfig(kind="fuzz", subjects=SUBJECTS, out=folder, device="cpu", workers=1)
    tally, missing, stored, read = Tally(), [], open_run(folder), []

    def counted():
        for each in resume.recount(tally, stored, config, 1.0, missing):
            read.append(isinstance(each, resume.Alike))
            yield each

    journal = Journal(config, Notes(Claims(3, 1.0, open=(1,))), counted())
    tally.company = vars(tally.company)
    tally.company["errors"] = vars(tally.company["errors"])
    tally.seen = vars(tally.seen)
    batches = journal.batches
    known = (batches._next, batches._ended, batches._open, vars(journal.compiled), vars(journal.lists)["_judged"])
    return (vars(tally), missing, known, journal.unmarked, stored.problems), read


def test_a_resumed_run_knows_the_same_with_an_index(run):
    plain, read = resumed(run)
    assert not any(read)
    index(run)
    found, read = resumed(run)

    assert all(read)
    assert found == plain
    assert (found[0]["judged"], found[0]["unsupported"], found[3] > 10) == (93, 7, True)


def test_a_resumed_run_parses_the_pieces_that_are_not_kept_and_leaves_out_what_is_damaged(run):
    index(run)
    lines = (run / RESULTS).read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"dim_v=64", b"dim_v=65", 1)
    (run / RESULTS).write_bytes(b"".join(lines))
    found, read = resumed(run)

    assert any(read)
    assert not all(read)
    assert found[-1] == ["results.jsonl: 1 damaged line(s) ignored"]
    (run / INDEX / "000001.segment").unlink()
    assert resumed(run)[0] == found


def test_a_line_that_is_in_two_pieces_counts_once(run):
    with (run / RESULTS).open("ab") as file:
        file.write((run / RESULTS).read_bytes().splitlines(keepends=True)[0])
    plain, _ = resumed(run)
    assert plain[-1] == ["results.jsonl: 1 repeated line(s) ignored"]
    index(run)

    assert resumed(run)[0] == plain


def test_the_index_grows_while_a_run_judges(run, monkeypatch):
    whole, asked = len(pieces(run)) - 1, []
    monkeypatch.setattr(indexing.subprocess, "Popen", lambda command, **_: asked.append(command) or ended())
    monkeypatch.setattr(indexing, "_EVERY", 0.0)
    growing = Indexing(run)
    for _ in range(2 * whole + 4):
        growing.tick()

    wanted = [("nice", *segment_command(run, number, piece)) for number, piece in enumerate(pieces(run)[:-1])]
    assert asked == wanted, "each piece once, but for the last one, which grows"


@pytest.mark.slow
@pytest.mark.thorough
def test_a_search_whose_index_grew_goes_on_and_judges_each_case_once(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "PIECE_BYTES", 2000)
    monkeypatch.setattr(indexing, "_EVERY", 0.0)
    out = tmp_path / "run"

    def kept(command, **_):
        number, begin, end = map(int, command[-3:])
        in_here(out, number, (begin, end))
        return ended()

    monkeypatch.setattr(indexing, "subprocess", SimpleNamespace(Popen=kept, DEVNULL=None))
    first = interrupted(out, 50)
    assert has_segment(out, 0), "it grew while the search ran"
    index(out)
    read = []
    parse = results.decode
    monkeypatch.setattr(results, "decode", lambda *args, **kinds: read.append(1) or parse(*args, **kinds))
    engine = Engine(config(out, "slow-clean"))
    assert (engine.tally.judged, read) == (first.cases, [])
    summary = engine.run()

    judged = Counter((r.origin, r.case) for r in open_run(out).results())
    assert judged.total() == len(judged) == summary.cases == 120


def ended():
    return SimpleNamespace(poll=lambda: 0, kill=lambda: None, wait=lambda: 0)


def test_a_process_that_reads_a_piece_keeps_it_and_ends_with_the_run(run, monkeypatch):
    monkeypatch.setattr(indexing, "_EVERY", 0.0)
    growing = Indexing(run)
    growing.tick()
    deadline = time.monotonic() + 100
    while not has_segment(run, 0) and time.monotonic() < deadline:
        time.sleep(0.02)
    growing.tick()
    growing.close()

    assert kept_segment(run, 0, pieces(run)[0]) is not None
    growing.close()
