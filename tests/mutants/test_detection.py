"""Every planted defect is found by the corpus and the fuzzer's own draws and checks within a bounded number of cases."""

import pytest

from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.mutants import BANK
from flashverify.subjects import has_gpu
from tests.mutants.hunting import showing


@pytest.fixture(scope="module", autouse=True)
def interpreter():
    if has_gpu():
        pytest.skip("kernels are compiled in this process: each mutant would be compiled anew")
    with toolkit.open("cpu", plain=False):
        yield


# Each hunt builds and records a package of kernels; the fast tier keeps one in twenty.
MUTANTS = [pytest.param(m, id=m.name, marks=[pytest.mark.slow] if n % 20 else []) for n, m in enumerate(BANK)]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_defect_is_found(mutant, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))

    assert showing(mutant, tmp_path) is not None
