"""Ring attention over processes: judged like any other subject, and what becomes of its processes."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.child_process import child_environment
from flashverify.subjects import has_gpu
from flashverify.subjects.ring import pool
from flashverify.subjects.ring.messages import Task, packed, unpacked
from flashverify.subjects.ring.pool import RankError, ranks_of
from flashverify.subjects.ring.subject import BUNDLED_RING

BASE = "fv1 batch=2 heads_q=2 heads_kv=1 dim_qk=16 dim_v=8 dtype=fp32"
CASES = [
    f"{BASE} seq_q=19 seq_k=19 causal=top-left dlse=yes",
    f"{BASE} seq_q=19 seq_k=22 causal=bottom-right softcap=2 launch=ranks:2,sharding:0",
    f"{BASE} seq_q=13 seq_k=19 window=5,2 klen=17,3 launch=ranks:2,sharding:2",
    f"{BASE} seq_q=3 seq_k=1 launch=ranks:2,sharding:1",
]
MORE = [
    f"{BASE} seq_q=19 seq_k=19 causal=top-left launch=ranks:4,sharding:2",
    f"{BASE} seq_q=19 seq_k=19 causal=top-left launch=ranks:8,sharding:1",
]


@pytest.fixture(scope="module", autouse=True)
def interpreter():
    if has_gpu():
        pytest.skip("kernels are compiled in this process")
    with toolkit.open("cpu", plain=False):
        yield


@pytest.mark.parametrize("text", [*CASES, *(pytest.param(text, marks=pytest.mark.slow) for text in MORE)])
def test_a_case_spread_over_ranks_is_within_its_bounds(text):
    case = parse_case(text)

    result = judge_case(BUNDLED_RING, case, Plan.only("accuracy", case))

    assert result.failures == ()
    assert {stats.output for stats in result.stats} == {"o", "lse", "dq", "dk", "dv", "delta"}


def test_a_causal_mask_that_ends_at_declared_lengths_is_refused():
    case = parse_case(f"{BASE} seq_q=13 seq_k=19 causal=bottom-right klen=17,3")

    assert "a band of its own" in (BUNDLED_RING.supports.refusal(case) or "")


def task(**changes):
    given = {
        "q": packed(torch.zeros(1, 1, 2, 16)),
        "k": packed(torch.zeros(1, 1, 2, 16)),
        "v": packed(torch.zeros(1, 1, 2, 16)),
    }
    fields = {"function": "forward", "package": "flashverify_kernels", "path": (), "options": {}, "tensors": given}
    return Task(**fields | {"ring": {"queries": 4, "keys": 4}} | changes)


def test_a_rank_that_fails_is_one_error_and_the_next_pass_has_new_ranks():
    ranks = ranks_of(2, "flashverify_kernels", interpreted=True)
    wrong = task(ring={"queries": 4, "keys": 4, "sharding": "spiral"})

    with pytest.raises(RankError, match=r"rank 1 of 2 raised ValueError: sharding: expected one of .*, got 'spiral'"):
        ranks.run([task(), wrong])

    assert not ranks.usable
    found = ranks_of(2, "flashverify_kernels", interpreted=True).run([task(), task()])
    assert [unpacked(answer["lse"]).shape for answer in found] == [(1, 1, 2), (1, 1, 2)]


def test_a_rank_that_ends_is_one_error():
    ranks = ranks_of(2, "flashverify_kernels", interpreted=True)
    os.kill(ranks._pids[1], signal.SIGKILL)

    with pytest.raises(RankError, match=r"rank [01] of 2 (ended without an answer|raised)"):
        ranks.run([task(), task()])


@pytest.fixture
def stopped(monkeypatch):
    """Two ranks, of which the second is stopped; `seconds` before they start and while they run."""

    def start(to_start, to_run):
        monkeypatch.setattr(pool, "SECONDS", to_start)
        monkeypatch.setattr(pool, "_pools", {})
        ranks = ranks_of(2, "flashverify_kernels", interpreted=True)
        ranks.run([task(), task()])
        monkeypatch.setattr(pool, "SECONDS", to_run)
        monkeypatch.setattr(pool, "_STACKS_S", 0.5)
        os.kill(ranks._pids[1], signal.SIGSTOP)
        return ranks

    return start


def test_a_rank_whose_neighbour_is_late_names_itself_and_the_step(stopped):
    with pytest.raises(
        RankError, match="rank 0 of 2, with the keys of rank 0: the exchange with its neighbours failed"
    ):
        stopped(2.0, 60.0).run([task(), task()])


@pytest.mark.thorough
def test_ranks_that_do_not_answer_say_where_they_stand(stopped):
    with pytest.raises(RankError) as error:
        stopped(60.0, 0.5).run([task(), task()])

    text = str(error.value)
    assert text.startswith("ranks 0, 1 of 2 did not answer within 0.5 s\nrank 0 stands at\n")
    assert "exchange.py" in text
    assert "rank 1 stands at\n  (it does not say)" in text


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
@pytest.mark.parametrize("shape", [(2, 3), (0, 4), (1,)])
def test_a_tensor_survives_the_way_to_a_rank(dtype, shape):
    x = torch.arange(12)[: torch.Size(shape).numel()].view(shape).to(dtype)

    assert torch.equal(unpacked(packed(x)), x)
    assert unpacked(packed(x)).dtype == dtype


STARTS = """
import time
from flashverify.subjects.ring.pool import _host, Ranks
host = _host(False, "")
ranks = Ranks(host, 2, "", "gloo")
print(*ranks._pids, host._process.pid, flush=True)
time.sleep(100)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
def test_ranks_end_with_a_worker_that_is_killed():
    command = [sys.executable, "-c", STARTS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=child_environment(interpret=False)) as worker:
        pids = [int(pid) for pid in worker.stdout.readline().split()]
        running = list(map(alive, pids))
        worker.kill()

    assert running == [True] * 3
    end = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
