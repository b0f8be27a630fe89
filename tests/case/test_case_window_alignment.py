"""A window without causal that is aligned at the last key."""

import pytest
import torch

from flashverify.case import format_case, parse_case
from flashverify.case.masks.predicate import visible
from flashverify.case.memory.materialize import materialize
from flashverify.errors import CaseTextError


def seen(text):
    case = parse_case(f"fv1 {text}")
    return visible(case)(slice(0, case.seq_q), slice(0, case.seq_k))


def test_a_row_stands_where_a_bottom_right_causal_mask_puts_it():
    found = seen("seq_q=3 seq_k=8 window=2,1 window_align=bottom-right")[0, 0]
    row, key = torch.arange(3)[:, None] + 5, torch.arange(8)

    assert torch.equal(found, (key >= row - 2) & (key <= row + 1))
    assert not torch.equal(found, seen("seq_q=3 seq_k=8 window=2,1")[0, 0])


def test_the_lengths_of_each_sequence_count():
    packed = seen("seq_q=3 seq_k=9 packed=0,1,3/0,4,9 window=1,* window_align=bottom-right")[0, 0]
    batch = seen("batch=2 seq_q=2 seq_k=5 qlen=1,2 klen=4,5 window=1,* window_align=bottom-right")[:, 0]

    assert torch.equal(packed[0, :4], batch[0, 0, :4])
    assert torch.equal(packed[1:, 4:], batch[1])


def test_with_right_0_it_is_the_causal_window():
    window = "seq_q=4 seq_k=11 window=3,0"

    assert torch.equal(seen(f"{window} window_align=bottom-right"), seen(f"{window} causal=bottom-right"))


def test_a_problem_names_the_alignment_of_its_window():
    masks = {
        "": None,
        "window=1,0": "top-left",
        "window=1,0 window_align=bottom-right": "bottom-right",
        "window=1,0 causal=bottom-right": "bottom-right",
    }

    assert {mask: materialize(parse_case(f"fv1 {mask}"))[0].window_alignment for mask in masks} == masks


def test_its_text_comes_back():
    text = "fv1 seq_k=4 window=1,0 window_align=bottom-right"

    assert format_case(parse_case(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("window=1,0 window_align=top-left", "window_alignment='top-left' is not accepted: None"),
        ("window_align=bottom-right", "window_alignment='bottom-right' is not accepted: only with window"),
        ("causal=top-left window=1,0 window_align=bottom-right", "that of causal='top-left', which the window follows"),
    ],
)
def test_what_contradicts_it_is_refused(text, message):
    with pytest.raises(CaseTextError, match=message):
        parse_case(f"fv1 {text}")
