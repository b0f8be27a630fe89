"""A sample of the compilations has something of everything."""

import itertools

import pytest

from flashverify.compiling import run, spread
from flashverify.compiling.records import Job
from flashverify.subjects.launches import Launch
from tests.compiling.discovered import launches_of

AXES = (("dq", "dkdv", "forward"), ("float16", "float32"), ("d=16", "d=64", "d=72"), ("causal", "none"))


def words(job):
    return {job.launch.kernel, f"sm_{job.capability}", *job.launch.label.split()}


@pytest.fixture
def jobs():
    return [
        Job(
            subject="some",
            capability=capability,
            deterministic=True,
            launch=Launch(label=" ".join(names), module="some", kernel=f"{names[0]}_kernel", arguments={}),
        )
        for *names, capability in itertools.product(*AXES, (80, 90))
    ]


def test_every_value_meets_every_other_and_none_is_favoured(jobs):
    chosen = spread(jobs, 18)

    pairs = {pair for job in jobs for pair in itertools.combinations(sorted(words(job)), 2)}
    assert {pair for job in chosen for pair in itertools.combinations(sorted(words(job)), 2)} == pairs
    for axis in (*AXES, ("sm_80", "sm_90")):
        counts = [sum(value in words(job) for job in chosen) for value in axis]
        assert max(counts) - min(counts) <= 2


def test_it_is_a_part_in_order_the_same_every_time(jobs):
    chosen = spread(jobs, 10)

    assert spread(jobs, 10) == chosen
    assert [jobs.index(job) for job in chosen] == sorted({jobs.index(job) for job in chosen})
    assert spread(jobs, None) == spread(jobs, 1000) == jobs


@pytest.mark.slow
def test_60_of_the_bundled_ones_have_every_kernel_dtype_size_mask_and_architecture(monkeypatch):
    monkeypatch.setattr(run, "find_launches", launches_of)
    found = run.find_jobs(["bundled"])

    assert len(found) > 300
    assert set().union(*map(words, spread(found, 60))) == set().union(*map(words, found))
