"""A damaged record is named, put aside, and costs that record alone; nothing outside of a run folder is touched."""

import gzip
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from flashverify.campaign.store import results
from flashverify.campaign.store.sealing import DamagedRecordError, decode, pretty, seal
from flashverify.campaign.store.writer import RunStore, open_run
from flashverify.errors import StoreError, UsageError
from flashverify.judge.record import RunRecord, Summary
from flashverify.judge.verdict import CaseResult, OutputStats, Status, Verdict
from flashverify.report.content import build_report
from tests.campaign.test_engine import campaign
from tests.campaign.test_store import finding

STORED = Path(__file__).parent / "stored_run_0_1_0"
DEEP = b'{"x":' * 100_000 + b"1" + b"}" * 100_000


def result(number):
    stats = (OutputStats("o", "end-to-end", 4, worst="0x1.8p-3"),)
    return CaseResult(f"fv1 seq_q={number}", "s", "cpu", (Verdict("accuracy", Status.PASS, ratio="0x1.8p-3"),), stats)


@pytest.fixture
def run(tmp_path):
    """A sealed run of five results and two findings."""
    store = RunStore(tmp_path / "run")
    store.write_header(RunRecord("fuzz", ("s",), 1, {}, sealed=True))
    for number in range(1, 6):
        store.append(result(number))
    store.write_finding(finding())
    store.write_finding(finding("other"))
    store.write_summary(Summary(5, 0, 5, 2, 0, 1.0, "interrupted", 130))
    store.close()
    return tmp_path / "run"


def cases(folder):
    stored = open_run(folder)
    found = [int(each.case.rpartition("=")[2]) for each in stored.results()]
    build_report(stored)
    return found, stored


def lines_of(run):
    return (run / "results.jsonl").read_bytes().splitlines(keepends=True)


@pytest.mark.slow
def test_every_flipped_bit_of_a_line_costs_that_line_alone(run):
    lines = lines_of(run)
    for place in range(len(lines[2]) - 1):
        damaged = bytearray(lines[2])
        damaged[place] ^= 1 << place % 7
        (run / "results.jsonl").write_bytes(b"".join([*lines[:2], bytes(damaged), *lines[3:]]))
        stored = open_run(run)
        found = [each.case for each in stored.results()]
        assert [f"fv1 seq_q={n}" for n in (1, 2, 4, 5)] == found, damaged
        assert "damaged line(s) ignored" in stored.problems[0]


DAMAGES = {
    "a flipped digit": lambda line: line.replace(b"1.8p-3", b"1.9p-3", 1),
    "no checksum": lambda line: result(3).to_json() + b"\n",
    "invalid UTF-8": lambda line: line.replace(b"cpu", b"\xff\xfeu"),
    "deep nesting": lambda line: seal(b'{"deep":' + DEEP + b"," + line[1:]) + b"\n",
    "a huge line": lambda line: b'{"case":"' + b"x" * 3000 + b'"}\n',
    "a NUL": lambda line: line[:20] + b"\0" + line[21:],
    "another record": lambda line: b"[]\n",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_line_is_copied_and_the_others_are_read(run, damage, monkeypatch):
    monkeypatch.setattr(results, "MAX_LINE_BYTES", 2000 if damage == "a huge line" else results.MAX_LINE_BYTES)
    lines = lines_of(run)
    lines[2] = DAMAGES[damage](lines[2])
    (run / "results.jsonl").write_bytes(b"".join(lines))

    found, stored = cases(run)
    assert found == [1, 2, 4, 5]
    assert stored.problems == ["results.jsonl: 1 damaged line(s) ignored"]
    assert lines[2][:1000] == (run / "results.jsonl.corrupt").read_bytes()[:1000]


def test_a_repeated_line_counts_once(run):
    lines = lines_of(run)
    (run / "results.jsonl").write_bytes(b"".join([*lines, lines[1], lines[1]]))

    found, stored = cases(run)
    assert (found, stored.problems) == ([1, 2, 3, 4, 5], ["results.jsonl: 2 repeated line(s) ignored"])


def test_a_packed_file_that_ends_early_is_read_up_to_there(run):
    packed = gzip.compress((run / "results.jsonl").read_bytes() * 50)
    (run / "results.jsonl").unlink()
    (run / "results.jsonl.gz").write_bytes(packed[:-20])

    found, stored = cases(run)
    assert found[:5] == [1, 2, 3, 4, 5]
    assert "results.jsonl.gz: what follows is damaged and ignored" in stored.problems[0]


STRANGE = {
    "a FIFO": lambda path, outside: os.mkfifo(path),
    "a link": lambda path, outside: path.symlink_to(outside),
    "a folder": lambda path, outside: path.mkdir(),
}


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("name", ["results.jsonl", "summary.json", "findings/x/finding.json", "refusals.json"])
def test_what_is_no_file_is_put_aside_by_readers(run, tmp_path, kind, name):
    outside = tmp_path / "outside"
    shutil.copy(run / "results.jsonl" if name == "results.jsonl" else run / "summary.json", outside)
    before = outside.read_bytes()
    path = run / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    STRANGE[kind](path, outside)

    found, stored = cases(run)
    assert found == ([] if name == "results.jsonl" else [1, 2, 3, 4, 5])
    assert len(stored.findings) == 2
    assert any("is no regular file" in problem for problem in stored.problems) or name == "refusals.json"
    assert before == outside.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["outside", "run"]


@pytest.mark.parametrize(
    "name", ["results.jsonl", "summary.json", "progress.json", "losses.json", "findings", "inflight"]
)
def test_nothing_is_written_through_a_link(tmp_path, name):
    run, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    run.mkdir()
    target = outside / "target"
    target.write_bytes(b"mine")
    (run / name).symlink_to(outside if name in ("findings", "inflight") else target)

    store = RunStore(run)
    store.write_header(RunRecord("fuzz", ("s",), 1, {}, sealed=True))
    store.append(result(1))
    store.inflight_path(0).write_bytes(b"")
    store.write_finding(finding())
    store.write_summary(Summary(1, 0, 1, 1, 0, 1.0, "budget", 1))
    store.close()

    assert os.listdir(outside) == ["target"]
    assert target.read_bytes() == b"mine"
    assert (run / f"{name}.corrupt").is_symlink()
    assert f"{name}.corrupt" in store.problems[0]


@pytest.mark.parametrize("name", ["run.json", ".lock"])
def test_a_header_or_lock_that_is_a_link_is_refused(run, tmp_path, name):
    shutil.move(run / "run.json", tmp_path / "target")
    for each in ("run.json", ".lock"):
        (run / each).unlink(missing_ok=True)
    (run / name).symlink_to(tmp_path / "target")
    before = (tmp_path / "target").read_bytes()

    with pytest.raises(StoreError, match="no regular file"):
        RunStore(run)
    assert before == (tmp_path / "target").read_bytes()


def test_a_linked_finding_folder_is_neither_read_nor_moved_outside(run, tmp_path):
    (folder, *_) = (run / "findings").iterdir()
    shutil.move(folder, tmp_path / "outside")
    (tmp_path / "outside" / "finding.json").write_bytes(b"{")
    folder.symlink_to(tmp_path / "outside")

    _, stored = cases(run)
    assert len(stored.findings) == 1
    assert "is a link and is not followed" in stored.problems[0]
    assert {"case.json", "finding.json", "repro.py"} == set(os.listdir(tmp_path / "outside"))


def test_results_without_a_header_are_not_gone_on_with(run):
    (run / "run.json").unlink()

    with pytest.raises(UsageError, match=r"results without run\.json"):
        campaign(run, "clean")


@pytest.mark.slow
def test_a_run_of_version_0_1_0_with_any_digit_flipped_is_read_and_reported(tmp_path):
    run = shutil.copytree(STORED, tmp_path / "run")
    file = next(run.glob("results.jsonl*"))
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    file.unlink()
    digits = [place for place, byte in enumerate(data) if chr(byte).isdigit()]
    for place in digits[:: len(digits) // 60]:
        damaged = data[:place] + b"7" + data[place + 1 :]
        (run / "results.jsonl").write_bytes(damaged.replace(b"fv1 ", b"fvx ", 1))
        stored = open_run(run)
        assert len(list(stored.results())) >= 11
        assert len(list(stored.results(parsed=True))) in (10, 11)
        build_report(stored)


def test_a_seal_covers_all_that_stands_before_it():
    summary = Summary(1, 0, 1, 1, 0, 1.0, "budget", 1)
    for data in (pretty(summary), seal(msgspec.json.encode(summary))):
        assert decode(data, Summary, sealed=True) == summary
        assert msgspec.json.decode(data, type=Summary) == summary
        with pytest.raises(DamagedRecordError, match="checksum"):
            decode(data.replace(b"budget", b"budged"), Summary)
    with pytest.raises(DamagedRecordError, match="missing"):
        decode(msgspec.json.encode(summary), Summary, sealed=True)


@pytest.mark.slow
def test_a_search_goes_on_over_damage_and_judges_what_it_lost(tmp_path):
    out = tmp_path / "run"
    campaign(out, "clean", max_cases=20, workers=1, max_findings=None)
    whole = [r.case for r in open_run(out).results()]
    (out / "summary.json").unlink()
    lines = lines_of(out)
    (out / "results.jsonl").write_bytes(b"".join([*lines[:5], lines[5].replace(b"fake", b"fbke"), *lines[6:12]]))

    summary, _ = campaign(out, "clean", max_cases=20, workers=2)

    stored = open_run(out)
    assert (summary.exit_code, summary.cases) == (0, 20)
    assert sorted(whole) == sorted(r.case for r in stored.results())
    assert stored.problems == ["results.jsonl: 1 damaged line(s) ignored"]
