"""The packaged corpus: intact, judged first, and clean on every bundled subject."""

import io
import math

import pytest
import torch

from flashverify.campaign.corpus import DETECTING, WORST, corpus_cases, format_entry, parse_entries, read_corpus
from flashverify.campaign.protocol import Batch, CaseList, Chunk, WorkerConfig
from flashverify.campaign.toolkit import BUNDLED
from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.campaign.worker.listing import listed
from flashverify.campaign.worker.session import Session
from flashverify.case import DTYPES, REGIMES, parse_case
from flashverify.case.masks.mask import PARTS
from flashverify.case.memory.materialize import materialize
from flashverify.case.modifiers.logits import MODIFIERS
from flashverify.case.space.profiles import GPU
from flashverify.errors import UsageError
from flashverify.mutants import Mutant, build_mutant
from flashverify.subjects import has_gpu
from tests.campaign.notes import following, schedule
from tests.fast_tier import fast_one_in

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

    assert len(set(corpus)) == len(corpus) <= 235
    parts = {part for case in corpus for part in case.mask.parts() | case.logits.names()}
    of_no_bundled_subject = {"window_alignment"}
    assert parts == {part.name for part in PARTS} - of_no_bundled_subject | {m.name for m in MODIFIERS} - {"dropout"}
    assert set(DTYPES) == {case.dtype for case in corpus}
    assert set(REGIMES) == {case.values.regime for case in corpus}
    assert any(case.dropout for case in corpus)
    assert any(case.storage.page_size for case in corpus)


def tiles(case):
    return -(-case.seq_k // dict(case.launch).get("block_n", 64))


def test_cases_of_several_tiles_and_many_parts_come_first():
    first, corpus = corpus_cases()[:40], corpus_cases()

    assert sum(tiles(case) > 1 for case in first) > 20
    parts = {part for case in first for part in case.mask.parts() | case.logits.names()}
    assert parts == {part for case in corpus for part in case.mask.parts() | case.logits.names()}
    assert "wild" in {case.logits.alibi for case in first}
    assert any(case.dropout and case.storage.strided is False for case in first)


def test_the_first_cases_show_a_contracted_scale():
    """Products with an exponent from 2^31 on: unrounded ones are off by more than exp2 can take."""
    for entry in read_corpus(DETECTING)[:4]:
        problem, _ = materialize(entry.case)
        dot, factor = (
            (problem.q.float() @ problem.k.float().mT).double(),
            torch.tensor(problem.scale * math.log2(math.e)),
        )
        rounded = (dot * factor.double()).float()
        excess = (dot * factor.double() - rounded.amax(-1, keepdim=True)).amax(-1)
        assert entry.found == "contracted_scale"
        assert (entry.case.dim_qk, entry.case.dim_v) == (64, 64)
        assert rounded.isfinite().all()
        assert rounded.abs().amax(-1).min() > 2.0**31
        assert (excess > 128).double().mean() > 0.2


def test_a_gpu_judges_the_cases_with_its_own_head_dims():
    found = corpus_cases("cuda")

    assert set(found) < set(corpus_cases("cpu")) == set(corpus_cases())
    assert {(case.dim_qk, case.dim_v) for case in found} <= set(GPU.dims)
    assert len(found) == sum((case.dim_qk, case.dim_v) in GPU.dims for case in corpus_cases()) >= 30


def test_a_worker_lists_the_corpus_of_its_device(tmp_path):
    found = {}
    for device in ("cpu", "cuda"):
        config = WorkerConfig(
            toolkit=BUNDLED, device=device, inflight=str(tmp_path / device), events_fd=0, case_limit=1.0
        )
        session = Session(config, io.BytesIO(), toolkit)
        found[device] = listed(session, CaseList("torch-cpu", corpus=True))

    assert set(found["cuda"]) < set(found["cpu"])
    assert {parse_case(text) for text in found["cuda"]} <= set(corpus_cases("cuda"))


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


def tasks(found):
    while not isinstance(task := following(found), Batch | None):
        yield task


def test_the_corpus_is_judged_first_in_the_plan_of_the_search(tmp_path):
    found = schedule(tmp_path, corpus=True)
    assert [CaseList("a", corpus=True), CaseList("b", corpus=True)] == [following(found) for _ in "ab"]
    found.listed("a", tuple("123"), corpus=True)
    found.listed("b", ("4",), corpus=True)

    chunks = list(tasks(found))

    assert {chunk.plan for chunk in chunks} == {"fuzz"}
    assert [(c.subject, case) for c in chunks for case in c.cases] == [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4")]


@pytest.mark.parametrize("first", ["ab", "ba"])
def test_the_corpus_takes_half_of_the_cases_at_most_whichever_subject_is_listed_first(tmp_path, first):
    found = schedule(tmp_path, max_cases=6, corpus=True)
    listed = {"a": tuple("12"), "b": tuple("34")}
    assert [CaseList, CaseList] == [type(following(found)) for _ in "ab"]
    found.listed(first[0], listed[first[0]], corpus=True)
    assert following(found) is None, "what is left for drawing is not known"
    found.listed(first[1], listed[first[1]], corpus=True)

    assert [case for task in tasks(found) for case in task.cases] == ["1", "2", "3"]
    assert isinstance(following(schedule(tmp_path)), Batch)


def test_what_a_lost_worker_left_of_a_chunk_keeps_its_plan(tmp_path):
    found = schedule(tmp_path)
    assert found.lost(Chunk("a", tuple("123"), "fuzz", "corpus a"), 1)

    assert [Chunk("a", tuple("23"), "fuzz", "corpus a")] == list(tasks(found))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("bundled", slice(0, None, 6)),
        *(pytest.param("bundled", slice(n, None, 6), marks=pytest.mark.thorough) for n in range(1, 6)),
        *((name, slice(None)) for name in ("bundled-decode", "bundled-chunked", "torch-cpu")),
    ],
    ids=str,
)
def test_the_corpus_is_clean(name, part):
    if has_gpu():
        pytest.skip("kernels are compiled in this process: each case would be compiled anew")
    with toolkit.open("cpu", plain=False, numerics="ieee"):
        subject = toolkit.load(name)
        accepted = [case for case in corpus_cases() if toolkit.refusal(subject, case) is None][part]
        results = [toolkit.judge(subject, case, "only:accuracy") for case in accepted]

    assert len(results) >= 10
    assert [(r.case, v.message) for r in results for v in r.verdicts if v.status in ("fail", "error")] == []


PLANTED = {
    "dropout_keep_tile_bound_1": ("bundled", "device/dropout.py", "w0 >= limit, w2", "w0 >= limit - 1, w2"),
    "dkdv_dkdv_kernel_fill_2": (
        "bundled",
        "device/dkdv.py",
        'lse2 = tl.load(lse2_ptrs, mask=i < q_end, other=float("inf"))[None, :]',
        "lse2 = tl.load(lse2_ptrs, mask=i < q_end, other=0.0)[None, :]",
    ),
    "host_terms_check_terms_layout_2": ("bundled", "terms.py", "else options.sink.contiguous()", "else options.sink"),
    "dsink_counts_rows_of_no_sequence": ("bundled", "reductions.py", "cu_q[-1]", "lse2.shape[2]"),
    "decode_bits_of_heads_subtracted": (
        "bundled-decode",
        "device/pages.py",
        "x.batch + h.to(tl.int64) * x.head)[:, None], x.row)",
        "x.batch - h.to(tl.int64) * x.head)[:, None], x.row)",
    ),
    "merge_statistics_accumulate_1": (
        "bundled-decode",
        "device/merge.py",
        "total += tl.sum(tl.exp2((lse - pivot",
        "total = tl.sum(tl.exp2((lse - pivot",
    ),
    "host_merge_dense_rows_layout_1": (
        "bundled-chunked",
        "merge.py",
        "x if x.stride(-1) == 1 else x.contiguous()",
        "x if x.stride(-1) == 1 else x",
    ),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", fast_one_in(3, PLANTED))
def test_a_case_shows_the_defect_that_it_is_kept_for(name, tmp_path, monkeypatch):
    if has_gpu():
        pytest.skip("kernels are compiled in this process: each case would be compiled anew")
    monkeypatch.syspath_prepend(str(tmp_path))
    subject, file, before, after = PLANTED[name]
    mutant = Mutant(
        name=f"corpus_{name}", file=file, before=before, after=after, outputs=(), modelled_on="", subject=subject
    )
    case = next(entry.case for entry in read_corpus(DETECTING) if name in entry.found.split(","))

    with toolkit.open("cpu", plain=False, numerics="ieee"):
        assert toolkit.judge(toolkit.load(build_mutant(mutant, tmp_path)), case, "fuzz").failures
        assert not toolkit.judge(toolkit.load(subject), case, "fuzz").failures
