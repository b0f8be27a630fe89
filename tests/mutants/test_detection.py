"""Every planted defect is found by the corpus and the fuzzer's own draws and checks within a bounded number of cases."""

from functools import cache
from itertools import chain

import pytest

from flashverify.campaign.corpus import corpus_cases
from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.campaign.worker.search import draw
from flashverify.mutants import BANK, build_mutant
from flashverify.mutants.runner.hunt import counts
from flashverify.subjects import has_gpu, load_subject

CASES = 250
"""Different cases of a batch."""
BATCHES = 8
"""Two features at once are rare; most defects are found in the first batch."""
ATTEMPTS = 5
"""Seeds that a batch may take."""


@pytest.fixture(scope="module", autouse=True)
def interpreter():
    if has_gpu():
        pytest.skip("kernels are compiled in this process: each mutant would be compiled anew")
    with toolkit.open("cpu", plain=False):
        yield


@cache
def batch(subject, number):
    return draw(toolkit.strategy(load_subject(subject), "cpu"), CASES, number * ATTEMPTS)


def cases(mutant):
    """In the order of a campaign: the corpus, then what is drawn."""
    drawn = chain.from_iterable(batch(mutant.subject, number) for number in range(BATCHES))
    return filter(mutant.concerns, chain(corpus_cases(), drawn))


# Each hunt takes a second or more; the fast tier keeps one in twenty.
MUTANTS = [pytest.param(m, id=m.name, marks=[pytest.mark.slow] if n % 20 else []) for n, m in enumerate(BANK)]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_defect_is_found(mutant, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    subject = toolkit.load(build_mutant(mutant, tmp_path))

    def shows(case):
        return any(counts(mutant, verdict) for verdict in toolkit.judge(subject, case, "fuzz").failures)

    assert any(shows(case) for case in cases(mutant))
