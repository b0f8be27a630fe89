"""The planted defects: each applies, in one place, and says what it needs."""

import dataclasses

import pytest

from flashverify.case.case import Case, Grad
from flashverify.case.mask import Mask, Packed
from flashverify.errors import UsageError
from flashverify.mutants import BANK, Mutant, build_mutant
from flashverify.mutants.mutant import SUBJECTS
from flashverify.subjects import load_subject


def test_names_are_unique_and_every_mutant_has_a_model():
    assert len({mutant.name for mutant in BANK}) == len(BANK)
    assert all(mutant.modelled_on and mutant.outputs for mutant in BANK)


@pytest.mark.parametrize("mutant", BANK, ids=lambda m: m.name)
def test_every_mutant_applies(mutant, tmp_path):
    spec = build_mutant(mutant, tmp_path)

    assert spec == f"{tmp_path}/mutant_{mutant.name}_subject.py:SUBJECT"
    assert mutant.after in (tmp_path / f"mutant_{mutant.name}" / mutant.file).read_text()


STALE = Mutant(name="stale", file="launch.py", before="no such text", after="", outputs=("o",), modelled_on="nothing")


def test_a_change_that_no_longer_applies_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="occurs 0 times"):
        build_mutant(STALE, tmp_path)


def test_an_unknown_subject_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="subject='other' is not one of bundled"):
        build_mutant(dataclasses.replace(STALE, subject="other"), tmp_path)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_mutant_stands_behind_its_subject(subject, tmp_path):
    mutant = next(mutant for mutant in BANK if mutant.subject == subject)

    loaded = load_subject(build_mutant(mutant, tmp_path))

    assert mutant.name == loaded.name
    assert type(load_subject(subject)) is type(loaded)


@pytest.mark.parametrize(
    ("needs", "case", "expected"),
    [
        ((), Case(), True),
        (("backward",), Case(), True),
        (("backward",), Case(grad=Grad(backward=False)), False),
        (("causal", "groups"), Case(heads_q=2, mask=Mask(causal="top-left")), True),
        (("causal", "groups"), Case(heads_q=2), False),
        (("sequences",), Case(batch=2), True),
        (("sequences",), Case(), False),
        (("sequences", "packed"), Case(seq_q=2, seq_k=2, mask=Mask(packed=Packed((0, 1, 2), (0, 1, 2)))), True),
        (("dropout",), Case(dropout=0.5), True),
        (("dropout", "paged"), Case(dropout=0.5), False),
    ],
)
def test_a_mutant_concerns_cases_that_have_all_it_needs(needs, case, expected):
    assert expected == dataclasses.replace(STALE, needs=needs).concerns(case)
