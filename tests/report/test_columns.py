"""The columns that a comparison reads of a run say what each result says."""

import hashlib
import math
from array import array

import msgspec
import pytest

from flashverify.errors import StoreError
from flashverify.judge.verdict import OutputStats, Status, Verdict
from flashverify.report.columns import STATUSES, VOID, Columns, ColumnsBuilder
from tests.report.synthetic import failing, passed, result, stats

REFUSED = (Verdict(check="accuracy", status=Status.UNSUPPORTED, message="no"),)
RESULTS = (
    result("fv1 dtype=fp32", stats=(stats("o", 0.25), stats("dq", 0.5, mode="conditional"))),
    failing("fv1 dtype=bf16", "other", "dq", ratio=math.inf),
    result("fv1 dtype=fp32 seq_q=3", "refusing", evidence="cpu", verdicts=REFUSED, stats=()),
    result("fv1 seq_q=4", stats=(OutputStats(output="o", mode="end-to-end", elements=9, exempt=9, uninformative=0),)),
    result("fv1 seq_q=5", stats=(stats("o", math.nan), msgspec.structs.replace(stats("o", 0.5), signed="-0x1p-2"))),
    result("fv1 seq_q=6", verdicts=passed("accuracy", "memory"), stats=(stats("o", -1.0),)),
)


@pytest.fixture
def columns():
    builder = ColumnsBuilder()
    for number, each in enumerate(RESULTS):
        builder.add(each, 100 * number)
    return Columns.unpacked(msgspec.msgpack.encode(builder.columns()))


def named(numbers, table):
    return [table[number] for number in array("I", numbers)]


def test_each_row_names_its_case_its_place_and_its_tables(columns):
    digests = [hashlib.blake2b(each.case.encode(), digest_size=16).digest() for each in RESULTS]

    assert [columns.keys[at : at + 16] for at in range(0, len(columns.keys), 16)] == digests
    assert list(array("I", columns.offsets)) == [0, 100, 200, 300, 400, 500]
    assert named(columns.subject, columns.subjects) == ["kernel", "other", "refusing", "kernel", "kernel", "kernel"]
    assert named(columns.dtype, columns.dtypes) == ["fp32", "bf16", "fp32", "fp16", "fp16", "fp16"]
    assert named(columns.layout, columns.layouts)[:3] == [
        (("o", "end-to-end"), ("dq", "conditional")),
        (("dq", "end-to-end"),),
        (),
    ]
    assert named(columns.failed, columns.failures) == [(), (("accuracy", "bound", "dq"),), (), (), (), ()]


def test_each_row_has_its_status_whether_it_covers_and_its_ratios(columns):
    statuses = [STATUSES[number] for number in columns.statuses]
    values, signed = list(array("d", columns.values)), list(array("d", columns.signed))

    assert statuses == [Status.PASS, Status.FAIL, Status.UNSUPPORTED, *[Status.PASS] * 3]
    assert [bool(each) for each in columns.covering] == [True, True, False, False, True, True]
    assert [values[at] for at in (0, 1, 2, 3, 5)] == [0.25, 0.5, math.inf, VOID, 0.5]
    assert math.isnan(values[4])
    assert math.isnan(values[6]), "a ratio below 0 says nothing"
    assert [math.isnan(each) for each in signed] == [True] * 5 + [False, True]
    assert signed[5] == -0.25


def test_a_subject_that_refused_gives_no_evidence(columns):
    assert columns.evidence == (("kernel", "interpreter"), ("other", "interpreter"))


def test_what_are_no_columns_is_named():
    with pytest.raises(StoreError, match="columns of results cannot be read"):
        Columns.unpacked(b"\x80")
