"""A case that makes the GPU unusable is blamed itself; the process that judged it is given up."""

import subprocess
import sys

import pytest

from flashverify.campaign.supervisor.process import DEVICE_LOST, death_verdict

WORKER = """
import torch
from flashverify.campaign.worker import session as worker

def broken():
    raise RuntimeError("CUDA error: an illegal memory access was encountered")

torch.cuda.synchronize = {synchronize}
worker.leave_a_lost_device()
"""


def run(synchronize):
    code = WORKER.format(synchronize=synchronize)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_lost_device_ends_the_process_and_says_why():
    done = run("broken")
    verdict = death_verdict(done.returncode, done.stderr)

    assert done.returncode == DEVICE_LOST
    assert (verdict.check, verdict.error) == ("crash", "device-lost")
    assert "illegal memory access" in verdict.message


@pytest.mark.slow
@pytest.mark.thorough
def test_a_device_that_works_ends_nothing():
    assert run("lambda: None").returncode == 0
