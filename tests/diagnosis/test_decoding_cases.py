"""A defect of decoding alone is told from one of every packed sequence by cases of several sequences with one row or none."""

import itertools

from flashverify.case.text import parse_case
from flashverify.diagnosis.decoding_cases import decoded
from tests.diagnosis.local_defects import RowPerSequence
from tests.diagnosis.test_diagnosis import named

ONE_ROW = "fv1 seq_q=1 seq_k=1 dim_qk=8 dim_v=8 dtype=fp32 backward=no packed=0,0,1/0,0,1"


def test_a_row_for_each_sequence_is_named():
    assert named(RowPerSequence(), ONE_ROW).name == "packed-row-for-each-sequence"


def test_sequences_have_one_row_or_none():
    cases = list(decoded(parse_case(ONE_ROW)))

    assert cases
    assert all(b - a <= 1 for case in cases for a, b in itertools.pairwise(case.mask.packed.cu_q))
    assert not list(decoded(parse_case(ONE_ROW.replace("seq_q=1", "seq_q=3").replace("0,0,1/", "0,0,3/"))))
