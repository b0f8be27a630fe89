import errno
import gzip
import json
import os
import subprocess
import sys

import pytest

from flashverify.campaign.store import files
from flashverify.campaign.store.files import read_capped, write_atomic
from flashverify.campaign.store.reproduction import read_reproduction
from flashverify.campaign.store.writer import RunStore, finding_name, open_run
from flashverify.campaign.worker.inflight import Inflight, InflightFile, read_inflight
from flashverify.errors import StoreError, UsageError
from flashverify.judge.record import FindingRecord, RunRecord, Summary
from flashverify.judge.verdict import CaseResult, Key, Status, Verdict

HEADER = RunRecord("fuzz", ("s",), 1, {"python": "3"})


def result(number):
    return CaseResult(
        case=f"fv1 seq_q={number}",
        subject="s",
        evidence="cpu",
        verdicts=(Verdict(check="accuracy", status=Status.PASS),),
    )


def finding(subject="s", **changes):
    verdict = Verdict(check="accuracy", status=Status.FAIL, error="bound", output="o", message='""" + "\\"')
    given = {"key": verdict.key(subject, "fp16"), "case": "fv1 seq_q=2", "first": "fv1 seq_q=2", "verdict": verdict}
    return FindingRecord(**(given | {"evidence": "interpreter", "subject_spec": "m:s"} | changes))


@pytest.fixture
def store(tmp_path):
    store = RunStore(tmp_path / "run")
    store.write_header(HEADER)
    yield store
    store.close()


def test_what_is_written_is_read(store):
    store.append(result(1))
    store.write_finding(finding())
    summary = Summary(1, 0, 0, 1, 0, 2.0, "budget", 1)
    store.write_summary(summary)

    run = open_run(store.path)
    assert (HEADER, summary, [finding()]) == (run.record, run.summary, [f.record for f in run.findings])
    assert [result(1)] == list(run.results())
    assert run.problems == []


def test_a_torn_last_line_is_reported_and_does_not_swallow_the_next(store):
    store.append(result(1))
    store._close_results()
    with (store.path / "results.jsonl").open("ab") as file:
        file.write(b'{"case":"fv1 seq')
    again = [r.case for r in open_run(store.path).results()]
    store.append(result(2))

    run = open_run(store.path)
    assert again == ["fv1 seq_q=1"]
    assert [r.case for r in run.results()] == ["fv1 seq_q=1", "fv1 seq_q=2"]
    assert run.problems == ["results.jsonl: 1 damaged line(s) ignored"]
    assert (store.path / "results.jsonl.corrupt").read_bytes() == b'{"case":"fv1 seq\n'


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b'{"key": 3}', b"[" * 5000])
def test_a_damaged_finding_is_set_aside(store, damage):
    folder = store.write_finding(finding())
    (folder / "finding.json").write_bytes(damage)

    run = open_run(store.path)
    assert run.findings == ()
    assert "finding.json is damaged" in run.problems[0]
    assert damage == (folder / "finding.json.corrupt").read_bytes()
    assert (folder / "case.json").exists()


def test_a_damaged_header_is_an_error_and_stays(store):
    (store.path / "run.json").write_bytes(b"{}")

    with pytest.raises(StoreError, match="damaged"):
        open_run(store.path)
    assert b"{}" == (store.path / "run.json").read_bytes() == (store.path / "run.json.corrupt").read_bytes()


def test_a_newer_format_is_refused(store):
    text = json.loads((store.path / "run.json").read_bytes()) | {"format": 99}
    (store.path / "run.json").write_text(json.dumps(text), encoding="utf-8")

    with pytest.raises(StoreError, match="format 99"):
        open_run(store.path)


def test_packed_results_are_read_too(store):
    store.append(result(1))
    store._close_results()
    plain = store.path / "results.jsonl"
    (store.path / "results.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()

    assert [result(1)] == list(open_run(store.path).results())


def test_an_empty_folder_is_no_run(tmp_path):
    with pytest.raises(StoreError, match="not a run folder"):
        open_run(tmp_path)


def test_a_failing_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_is_loud_on_append(store):
    store._results = os.open("/dev/full", os.O_WRONLY)

    with pytest.raises(StoreError, match="No space left"):
        store.append(result(1))
    os.close(store._results)
    store._results = -1


def test_reads_are_capped(tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 11)

    with pytest.raises(StoreError, match="larger than 10"):
        read_capped(tmp_path / "big", 10)


@pytest.mark.parametrize("name", ["../../x", "..", "", "/etc/passwd", "a\0b", "é" * 300, "<b>", ".hidden"])
def test_finding_folders_stay_inside(store, name):
    key = Key(name, name, name, name, name)

    path = store.finding_path(key)
    assert store.path / "findings" == path.resolve().parent
    assert path.name.isascii()
    assert not path.name.startswith(".")
    assert len(path.name) <= 100


def test_different_keys_have_different_folders():
    long = "x" * 200

    assert finding_name(Key(long, "a", "", "", "")) != finding_name(Key(long, "b", "", "", ""))
    assert finding_name(Key("a/b", "", "", "", "")) != finding_name(Key("a_b", "", "", "", ""))


@pytest.mark.parametrize("spec", ['x"""', "x'\n\"", "\\", "{case}", "</script>"])
def test_the_script_treats_names_as_data(store, spec):
    folder = store.write_finding(finding(subject_spec=spec))

    source = (folder / "repro.py").read_text(encoding="utf-8")
    compile(source, "repro.py", "exec")
    assert f"SUBJECT = {spec!a}" in source.splitlines()
    assert spec == read_reproduction(folder).subject == read_reproduction(folder / "finding.json").subject


@pytest.mark.slow
@pytest.mark.thorough
def test_the_script_reproduces(store, tmp_path):
    folder = store.write_finding(finding(subject_spec="missing:name"))

    done = subprocess.run([sys.executable, folder / "repro.py"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "missing" in done.stderr.splitlines()[-1]


def test_something_else_is_no_reproduction(tmp_path):
    (tmp_path / "case.json").write_text("[]", encoding="utf-8")

    with pytest.raises(UsageError, match=r"case\.json"):
        read_reproduction(tmp_path)


def test_a_finding_folder_is_read_without_following_or_waiting(tmp_path):
    os.mkfifo(tmp_path / "case.json")

    with pytest.raises(StoreError, match="no regular file"):
        read_reproduction(tmp_path)


def test_a_torn_note_names_no_case(tmp_path):
    path = tmp_path / "note"
    note, long = InflightFile(str(path)), Inflight("m:s", "s", "fv1 " + "x" * 9000)
    note.announce(long)
    assert long == read_inflight(path)
    note.announce(Inflight("m:s", "s", "fv1"))
    assert Inflight("m:s", "s", "fv1") == read_inflight(path)
    data = path.read_bytes()
    path.write_bytes(data[:18] + b"#" + data[19:])
    assert read_inflight(path) is None
    note.clear()
    assert read_inflight(path) is None
    assert read_inflight(tmp_path / "absent") is None
