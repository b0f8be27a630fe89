"""Processes that compile ahead leave the processors to those that judge."""

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="the system has no such class of processes")
def test_what_compiles_ahead_and_what_it_starts_run_when_nothing_else_would():
    told = "import os; print(os.nice(0), os.sched_getscheduler(0) == os.SCHED_IDLE)"
    code = (
        "import subprocess, sys\n"
        "from flashverify.campaign.worker.main import yield_processors\n"
        "yield_processors()\n"
        f"subprocess.run([sys.executable, '-c', {told!r}], check=True)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["19", "True"]
