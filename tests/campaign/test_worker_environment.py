"""The variables that a worker is started with."""

import pytest

from flashverify.campaign.supervisor.process import worker_environment
from flashverify.child_process import child_environment

KEPT = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


def test_a_worker_of_a_gpu_keeps_the_memory_that_it_frees_and_one_that_interprets_does_not(monkeypatch):
    for name in KEPT:
        monkeypatch.delenv(name, raising=False)

    assert all(int(worker_environment("cuda")[name]) >= 1 << 25 for name in KEPT)
    assert not set(KEPT) & worker_environment("cpu").keys()


def test_what_the_user_says_of_memory_stays(monkeypatch):
    monkeypatch.setenv(KEPT[1], "4096")
    assert worker_environment("cuda")[KEPT[1]] == worker_environment("cpu")[KEPT[1]] == "4096"


@pytest.mark.parametrize(
    "environment", [worker_environment, lambda device: child_environment(interpret=device == "cpu")]
)
def test_a_process_that_interprets_sees_no_gpu_whatever_this_process_sees(environment, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")

    assert environment("cpu")["CUDA_VISIBLE_DEVICES"] == ""
    assert environment("cuda")["CUDA_VISIBLE_DEVICES"] == "1,2"
