"""The planted defects: each applies, and each is found within a bounded number of cases."""

import pytest

from flashverify.errors import UsageError
from flashverify.mutants import BANK, Mutant, build_mutant


def test_names_are_unique_and_every_mutant_has_a_model():
    assert len({mutant.name for mutant in BANK}) == len(BANK)
    assert all(mutant.modelled_on and mutant.outputs for mutant in BANK)


@pytest.mark.parametrize("mutant", BANK, ids=lambda m: m.name)
def test_every_mutant_applies(mutant, tmp_path):
    spec = build_mutant(mutant, tmp_path)

    assert spec == f"{tmp_path}/mutant_{mutant.name}_subject.py:SUBJECT"
    assert mutant.after in (tmp_path / f"mutant_{mutant.name}" / mutant.file).read_text()


def test_a_change_that_no_longer_applies_is_an_error(tmp_path):
    stale = Mutant(
        name="stale", file="launch.py", before="no such text", after="", outputs=("o",), modelled_on="nothing"
    )

    with pytest.raises(UsageError, match="occurs 0 times"):
        build_mutant(stale, tmp_path)
