"""Every planted defect is found by the fuzzer's own draws and checks within a bounded number of cases."""

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.mutants import BANK, build_mutant
from flashverify.subjects import has_gpu

CASES = 250


@pytest.fixture(scope="module", autouse=True)
def interpreter():
    if has_gpu():
        pytest.skip("kernels are compiled in this process: each mutant would be compiled anew")
    with toolkit.open("cpu", plain=False):
        yield


@pytest.mark.parametrize("mutant", BANK, ids=lambda m: m.name)
def test_a_planted_defect_is_found(mutant, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    subject = toolkit.load(build_mutant(mutant, tmp_path))
    drawn, found = set(), []

    @seed(0)
    @settings(
        max_examples=CASES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(toolkit.strategy(subject, "cpu"))
    def hunt(case):
        if found or case in drawn:
            return
        drawn.add(case)
        result = toolkit.judge(subject, case, "fuzz")
        if any(verdict.output in mutant.outputs for verdict in result.failures):
            found.append(str(case))

    hunt()

    assert found
