"""Workers that share a GPU give back what torch keeps of it, and judge a case again that met a full one; here the GPU is pretended."""

from types import SimpleNamespace

import pytest
import torch

from flashverify import Case
from flashverify.campaign.protocol import WorkerConfig
from flashverify.campaign.worker.gpu_memory import give_back
from flashverify.campaign.worker.session import Session
from flashverify.judge.verdict import CaseResult, Status, Verdict

GIB = 1 << 30


@pytest.fixture
def gpu(monkeypatch):
    """One of 100 GiB; `kept` is what torch holds of it, `emptied` how often it gave that back."""
    state = SimpleNamespace(kept=0, emptied=0)

    def empty():
        state.kept, state.emptied = 0, state.emptied + 1

    def stats():
        return {"reserved_bytes": {"all": {"current": state.kept}}}

    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", stats)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: SimpleNamespace(total_memory=100 * GIB))
    monkeypatch.setattr(torch.cuda, "empty_cache", empty)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return state


@pytest.mark.parametrize(
    ("sharers", "kept", "emptied"), [(8, 11, 1), (8, 9, 0), (1, 79, 0), (None, 1, 1), (None, 0, 0)]
)
def test_what_is_more_than_a_part_is_given_back(gpu, sharers, kept, emptied):
    gpu.kept = kept * GIB
    give_back(sharers)
    assert gpu.emptied == emptied


def session(folder, judge):
    toolkit = SimpleNamespace(load=lambda spec: spec, judge=judge)
    made = Session(WorkerConfig("t:t", "cuda", str(folder / "note"), 0, 1.0, sharers=8), None, toolkit)
    made.emit = lambda event: None
    return made


def ended(check, message):
    verdict = Verdict(check=check, status=Status.FAIL, error="exception", message=message)
    return CaseResult(case="fv1", subject="s", evidence="", verdicts=(verdict,))


FULL = "RuntimeError: Triton Error [CUDA]: out of memory"


@pytest.mark.parametrize("check", ["exception", "harness"])
def test_a_case_that_met_a_full_gpu_is_judged_again(tmp_path, gpu, check):
    gpu.kept, passed = GIB, CaseResult(case="fv1", subject="s", evidence="", verdicts=())
    answers = iter([ended(check, FULL), passed])
    result = session(tmp_path, lambda subject, case, plan: next(answers)).judge("s", Case(), "run")
    assert (result.verdicts, gpu.emptied, next(answers, None)) == ((), 1, None)


@pytest.mark.parametrize(("message", "calls"), [(FULL, 2), ("ValueError: no", 1)])
def test_a_case_for_which_the_gpu_is_too_small_fails(tmp_path, gpu, message, calls):
    asked = []

    def judge(subject, case, plan):
        asked.append(case)
        return ended("exception", message)

    result = session(tmp_path, judge).judge("s", Case(), "run")
    assert [v.message for v in result.failures] == [message]
    assert len(asked) == calls


def test_a_worker_gives_back_after_each_case(tmp_path, gpu):
    def judge(subject, case, plan):
        gpu.kept = 11 * GIB
        return CaseResult(case="fv1", subject="s", evidence="", verdicts=())

    made = session(tmp_path, judge)
    for _ in range(2):
        made.judge("s", Case(), "run")
    assert gpu.emptied == 2
