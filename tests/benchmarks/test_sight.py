"""The table of sight: its defects can be planted, its cases exist, and a length that hides a defect is named."""

import argparse

import pytest
import sight
import sight_page
import sight_places

from flashverify import corrected_interpreter, parse_case
from flashverify.mutants import build_mutant
from flashverify.mutants.build import changed_text
from flashverify.subjects import load_subject
from flashverify.subjects.bundled import Bundled


def test_every_defect_of_the_table_applies_to_the_kernels():
    known = sight_places.mutants()

    assert all(changed_text(known[name]) for name in sight_places.DEFECTS if name != sight_places.CLEAN)


@pytest.mark.parametrize("of_rows", [False, True])
def test_the_rows_of_a_case_see_keys_at_every_length_and_enough_of_them_are_asked(of_rows):
    for length in sight_places.LENGTHS["cuda"]:
        case = parse_case(f"fv1 {sight_places.shape(length, 64, of_rows=of_rows)}")

        summed, other = (case.seq_q, case.seq_k) if of_rows else (case.seq_k, case.seq_q)
        assert summed == length + 3
        assert case.heads_q * other > 100
        assert case.mask.causal == "top-left" or case.seq_k >= case.seq_q


def test_the_page_names_what_no_check_sees():
    seen = [
        sight_page.Sight("none", 64, "fp16", ()),
        sight_page.Sight("a", 64, "fp16", ("accuracy o", "accuracy lse", "statistics dq")),
        sight_page.Sight("a", 128, "fp16", ()),
    ]
    text = sight_page.tables_of(seen, ("none", "a"), ("fp16",))

    assert text.startswith("Not seen by any check: `a` in fp16 at 128.")
    assert "| a | fp16 | accuracy, statistics | – |" in text
    assert "| none | fp16 | – |  |" in text
    assert sight_page.tables_of(seen[:2], ("none", "a"), ("fp16",)).startswith("Every defect is seen")


def test_the_page_says_where_a_launch_leaves_nothing_to_see():
    seen = [
        sight_page.Sight("a", 64, "fp16", ("accuracy dv",), "normal", same=True, tiles=16),
        sight_page.Sight("a", 128, "fp16", (), same=True),
        sight_page.Sight("a", 256, "fp16", ("statistics dv",), "normal", tiles=16),
    ]
    text = sight_page.tables_of(seen, ("none", "a"), ("fp16",))

    assert text.startswith("Every defect is seen by a check at every length that was judged. At 2 places")
    assert "| a | fp16 | = accuracy in 16 | = | statistics in 16 |" in text
    assert sight_page.tables_of(
        [*seen[:2], sight_page.Sight("a", 256, "fp16", ())], ("none", "a"), ("fp16",)
    ).startswith("Not seen by any check: `a` in fp16 at 256.")


def test_the_last_line_of_a_place_counts(tmp_path):
    lines = [
        sight_page.Sight("a", 64, "fp16", ()),
        sight_page.Sight("b", 64, "fp16", ()),
        sight_page.Sight("a", 64, "fp16", ("accuracy o",), "normal", same=True, tiles=16),
    ]
    record = tmp_path / "record"
    record.write_bytes(b"".join(sight_page.LINES.encode(line) + b"\n" for line in lines))

    assert sight_page.read(record) == [lines[2], lines[1]]
    assert sight_page.read(tmp_path / "none") == []


def test_what_no_check_sees_is_judged_anew_beside_what_is_missing():
    defect = "dv_accumulated_in_the_input_dtype"
    seen = [
        sight_page.Sight(defect, 64, "fp16", ()),
        sight_page.Sight(defect, 128, "fp16", (), same=True),
        sight_page.Sight(defect, 16384, "fp16", ("statistics dv",), "few-keys"),
        sight_page.Sight("none", 64, "fp16", ()),
    ]
    options = argparse.Namespace(
        lengths="64,128,16384,32768", device="cuda", dtypes="fp16", only=[defect, "none"], minutes=1.0, only_unseen=True
    )

    jobs = sight.jobs_of(options, seen)
    usual = sight.jobs_of(argparse.Namespace(**{**vars(options), "only_unseen": False}), seen)

    assert [(job[0], job[1]) for job in jobs if job[0] == defect] == [
        (defect, [(64, "fp16")]),
        (defect, [(32768, "fp16")]),
    ]
    assert [(job[0], job[1]) for job in usual if job[0] == defect] == [(defect, [(32768, "fp16")])]
    assert all(job[3] == "few-keys" for job in jobs if job[0] == defect)
    for places in ([(128, "fp16")], [(16384, "fp16")], [(32768, "fp16")]):
        values = [each for job in jobs if job[:2] == ("none", places) for each in job[2]]
        assert values == list(sight_places.VALUES)


@pytest.mark.parametrize(("length", "same", "tiles"), [(16, True, 16), (64, False, 0)])
def test_a_sum_that_one_tile_holds_is_seen_in_smaller_tiles(tmp_path, length, same, tiles):
    """The interpreter's own tiles have 64 rows: 19 rows are one of them, 67 are two."""
    defect = "dv_accumulated_in_the_input_dtype"
    with corrected_interpreter():
        mutant = load_subject(build_mutant(sight_places.mutants()[defect], tmp_path))
        found = sight.look_at(defect, mutant, (length, "bf16"), [("normal", 64, 0)], float("inf"))

    assert found == sight_page.Sight(defect, length, "bf16", ("accuracy dv",), "normal", same=same, tiles=tiles)


SEEN = ("accuracy dv", "accuracy o")


@pytest.mark.parametrize(("without", "left"), [((), SEEN), (("accuracy o",), ("accuracy dv",)), (SEEN, ())])
def test_what_the_kernels_without_the_defect_fail_too_is_no_sight_of_it(monkeypatch, without, left):
    monkeypatch.setattr(sight, "seen_by", lambda subject, cases, until: (without, "normal" if without else ""))

    assert sight.by_the_defect((SEEN, "normal"), Bundled(), [], 0.0) == (left, "normal" if left else "")


def test_bits_are_the_same_where_they_are_in_every_case(tmp_path):
    defect = "dv_accumulated_in_the_input_dtype"
    short, long = (sight_places.case_of(defect, length, "bf16", ("normal", 16, 0)) for length in (16, 64))
    with corrected_interpreter():
        mutant, right = load_subject(build_mutant(sight_places.mutants()[defect], tmp_path)), Bundled(hopper=False)

        assert sight.same_bits(mutant, right, [short])
        assert not sight.same_bits(mutant, right, [short, long])
