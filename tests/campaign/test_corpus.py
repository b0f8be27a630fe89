"""The packaged corpus: intact, judged first, and clean on every bundled subject."""

import pytest

from flashverify.campaign.corpus import DETECTING, WORST, corpus_cases, format_entry, parse_entries, read_corpus
from flashverify.campaign.events import Batch, CaseList, Chunk
from flashverify.campaign.schedule import CampaignConfig, Schedule
from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.case import DTYPES, REGIMES
from flashverify.errors import UsageError
from flashverify.subjects import has_gpu

GOOD = "0.5000 o end-to-end bundled fv1 seq_q=2\nname_1,name_2 fv1 seq_q=3\n# a comment\n"


@pytest.mark.parametrize("name", [DETECTING, WORST])
def test_the_packaged_lines_are_canonical(name):
    entries = read_corpus(name)

    assert 60 <= len(entries) <= 250
    assert parse_entries(name, "".join(f"{format_entry(entry)}\n" for entry in entries)) == entries
    assert all((0 < entry.ratio <= 1) == (name == WORST) for entry in entries)
    assert all(bool(entry.found) == (name == DETECTING) for entry in entries)


def test_the_corpus_meets_every_part_dtype_and_regime():
    corpus = corpus_cases()

    assert len(set(corpus)) == len(corpus) <= 400
    parts = {part for case in corpus for part in case.mask.parts() | case.logits.names()}
    assert parts == {
        *("causal", "window", "key_lengths", "query_lengths", "packed", "tree", "blocks", "bitmap"),
        *("softcap", "alibi", "bias", "sink"),
    }
    assert set(DTYPES) == {case.dtype for case in corpus}
    assert set(REGIMES) == {case.values.regime for case in corpus}
    assert any(case.dropout for case in corpus)
    assert any(case.storage.page_size for case in corpus)


def test_good_lines_are_read():
    first, second = parse_entries("x", GOOD)

    assert (first.ratio, first.output, first.mode, first.subject, first.case.seq_q) == (
        0.5,
        "o",
        "end-to-end",
        "bundled",
        2,
    )
    assert (second.found, second.case.seq_q) == ("name_1,name_2", 3)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("0.5 o end-to-end bundled fv1 seq_q=0x", "line 4: '0.5 o end-to-end bundled fv1 seq_q=0x' is not accepted"),
        ("0.5 o bundled fv1 seq_q=5", "line 4: .* a ratio, an output, a mode and a subject"),
        ("-1 o end-to-end bundled fv1 seq_q=5", "line 4: .* ratio=-1: a positive number"),
        ("nan o end-to-end bundled fv1 seq_q=5", "line 4: .* ratio=nan: a positive number"),
        ("x o end-to-end bundled fv1 seq_q=5", "line 4: .* could not convert"),
        ("", "line 4: '' is not accepted: a case starts with"),
        ("seq_q=5", "line 4: .* a case starts with"),
        ("again fv1 seq_q=2", "line 4: the case stands twice: fv1 seq_q=2"),
    ],
)
def test_a_damaged_line_is_an_error_that_names_it(line, named):
    with pytest.raises(UsageError, match=f"x, {named}"):
        parse_entries("x", f"{GOOD}{line}\n")


def schedule(tmp_path, **changes):
    given = {"kind": "fuzz", "subjects": ("a", "b"), "out": tmp_path, "device": "cpu", "workers": 1, "corpus": True}
    return Schedule(CampaignConfig(**(given | changes)), lambda _: None)


def tasks(found, room=None):
    while not isinstance(task := found.next(room, False, lambda _: ()), Batch):
        yield task


def test_the_corpus_is_judged_first_in_the_plan_of_the_search(tmp_path):
    found = schedule(tmp_path)
    assert [CaseList("a", corpus=True), CaseList("b", corpus=True)] == [
        found.next(None, False, lambda _: ()) for _ in "ab"
    ]
    found.listed("a", tuple("123"), corpus=True)
    found.listed("b", ("4",), corpus=True)

    chunks = list(tasks(found))

    assert {chunk.plan for chunk in chunks} == {"fuzz"}
    assert [(c.subject, case) for c in chunks for case in c.cases] == [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4")]


def test_the_corpus_takes_half_of_the_cases_at_most_and_none_of_a_resumed_run(tmp_path):
    found = schedule(tmp_path, max_cases=6)
    found.listed("a", tuple("12"), corpus=True)
    found.listed("b", tuple("34"), corpus=True)

    assert [case for task in tasks(found, 6) if isinstance(task, Chunk) for case in task.cases] == ["1", "2", "3"]
    config = CampaignConfig(kind="fuzz", subjects=("a",), out=tmp_path, device="cpu", workers=1, corpus=True)
    assert isinstance(Schedule(config, lambda _: None, 3).next(None, False, lambda _: ()), Batch)
    assert isinstance(schedule(tmp_path, corpus=False).next(None, False, lambda _: ()), Batch)


def test_what_a_lost_worker_left_of_a_chunk_keeps_its_plan(tmp_path):
    found = schedule(tmp_path)
    found.lost(Chunk("a", tuple("123"), "fuzz"), 1)

    assert [Chunk("a", tuple("23"), "fuzz")] == [task for task in tasks(found) if isinstance(task, Chunk)]


@pytest.mark.parametrize("name", ["bundled", "bundled-decode", "bundled-chunked", "torch-cpu"])
def test_the_corpus_is_clean(name):
    if has_gpu():
        pytest.skip("kernels are compiled in this process: each case would be compiled anew")
    with toolkit.open("cpu", plain=False, numerics="ieee"):
        subject = toolkit.load(name)
        accepted = [case for case in corpus_cases() if toolkit.refusal(subject, case) is None]
        results = [toolkit.judge(subject, case, "only:accuracy") for case in accepted]

    assert len(results) >= 10
    assert [(r.case, v.message) for r in results for v in r.verdicts if v.status in ("fail", "error")] == []
