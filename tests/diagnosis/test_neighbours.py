"""Cases that differ in one respect: there are some of every kind of storage, also where another part of it forbids a change."""

from dataclasses import replace
from itertools import islice

import pytest

from flashverify.case.text import parse_case
from flashverify.diagnosis import diagnose as diagnosing
from flashverify.diagnosis.neighbours import neighbours
from tests.diagnosis.planted import Plain, planted
from tests.diagnosis.test_diagnosis import first_failure

SUPPORTS = replace(Plain.supports, page_sizes=(4, 16), transposed=True)
TEXT = "fv1 seq_q=3 seq_k=9 dim_qk=8 dim_v=8 dtype=fp32 "


def _storages(text):
    return {case.storage for case in islice(neighbours(SUPPORTS, parse_case(TEXT + text)), 200)}


@pytest.mark.parametrize("text", ["page_size=4", "page_size=16 layout=bshd"])
def test_pages_have_neighbours_without_pages_and_none_that_is_transposed(text):
    found = _storages(text)
    assert {storage.page_size for storage in found} == {None, 4, 16}
    assert not any(storage.transposed for storage in found)


def test_a_transposed_case_has_neighbours_that_are_not_and_none_in_pages():
    found = _storages("transposed=yes")
    assert {storage.transposed for storage in found} == {True, False}
    assert {storage.page_size for storage in found} == {None}


def test_a_case_without_either_has_both():
    found = _storages("")
    assert {4, 16} <= {storage.page_size for storage in found}
    assert any(storage.transposed for storage in found)


def test_a_description_that_fails_takes_nothing_else_away(monkeypatch, capsys):
    def described(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr(diagnosing, "described", described)
    subject = planted(scale=lambda self, problem: 1.37 * problem.scale)
    case = parse_case(TEXT)
    found = diagnosing.diagnose(subject, case, first_failure(subject, case), seconds=2)
    assert found.place
    assert "What it depends on was not found out." in found.sentence
    assert "describing the failure failed: RuntimeError: planted" in capsys.readouterr().err
