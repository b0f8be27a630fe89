"""The table of sight: its defects can be planted, its cases exist, and a length that hides a defect is named."""

import pytest
import sight
import sight_page

from flashverify import parse_case
from flashverify.mutants.build import changed_text


def test_every_defect_of_the_table_applies_to_the_kernels():
    known = sight.mutants()

    assert all(changed_text(known[name]) for name in sight.DEFECTS if name != sight.CLEAN)


@pytest.mark.parametrize("of_rows", [False, True])
def test_the_rows_of_a_case_see_keys_at_every_length_and_enough_of_them_are_asked(of_rows):
    for length in sight.LENGTHS["cuda"]:
        case = parse_case(f"fv1 {sight.shape(length, 64, of_rows=of_rows)}")

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
