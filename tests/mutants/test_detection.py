"""Every planted defect is found by the corpus and the fuzzer's own draws and checks within a bounded number of cases."""

import pytest

from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.case.text import format_case
from flashverify.mutants import BANK
from flashverify.subjects import has_gpu
from tests.fast_tier import fast_one_in
from tests.mutants import hunting
from tests.mutants.hunting import batch, cases, known, showing


@pytest.fixture(scope="module", autouse=True)
def interpreter():
    if has_gpu():
        pytest.skip("kernels are compiled in this process: each mutant would be compiled anew")
    with toolkit.open("cpu", plain=False):
        yield


# Each hunt builds and records a package of kernels: `make test` keeps one in twelve, the fast tests half of these.
# A defect that no case of the corpus shows costs hundreds of draws: the first such one is kept.
DRAWN = [m for m in BANK if known().get(m.name, (0, ""))[0]]
OF_THE_CORPUS = fast_one_in(24, (pytest.param(m, id=m.name) for m in BANK if m not in DRAWN), kept=12)
OF_DRAWS = fast_one_in(1, (pytest.param(m, id=m.name, marks=[pytest.mark.slow]) for m in DRAWN), kept=len(DRAWN))


@pytest.mark.parametrize("mutant", [*OF_THE_CORPUS, *OF_DRAWS])
def test_a_planted_defect_is_found(mutant, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))

    assert showing(mutant, tmp_path) is not None


def test_cases_that_are_known_to_show_a_defect_are_of_the_bank():
    assert known().keys() <= {mutant.name for mutant in BANK}


@pytest.mark.parametrize("text", ["fv1 seq_q=1000", None])
def test_a_hunt_begins_with_the_known_case_where_the_corpus_or_a_draw_has_it(text, monkeypatch):
    mutant = next(m for m in BANK if not m.needs)
    corpus = list(batch(mutant.subject, 0).values())
    last = format_case(corpus[-1])
    monkeypatch.setattr(hunting, "known", lambda: {mutant.name: (0, text or last)})

    assert next(cases(mutant)) == (corpus[0] if text else corpus[-1])
