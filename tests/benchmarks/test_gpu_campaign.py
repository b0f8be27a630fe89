"""What a measured search is: its setting is that of a search by the command line, and every finding of it can be printed."""

import argparse

import msgspec
import pytest

from flashverify.judge.record import FindingRecord
from flashverify.judge.verdict import Key, Status, Verdict


@pytest.fixture
def gpu_campaign():
    import gpu_campaign

    return gpu_campaign


def options(**changes):
    defaults = {"workers": 14, "compilers": 0, "seconds": 9.0, "seed": 7, "mps": True}
    return argparse.Namespace(**(defaults | changes))


@pytest.mark.parametrize(("changes", "shared"), [({}, True), ({"workers": 1}, False), ({"mps": False}, False)])
def test_workers_share_the_gpu_unless_asked_not_to(gpu_campaign, tmp_path, changes, shared):
    found = gpu_campaign.configured("bundled", "ahead", tmp_path / "cache", tmp_path / "out", options(**changes))

    assert found.mps is shared


def test_a_finding_that_was_not_verified_is_printed(gpu_campaign, capsys):
    verdict = Verdict(check="nonfinite", status=Status.FAIL, output="dq", error="inf", message="dq[0] is inf")
    key = Key("flex", "nonfinite", "inf", "dq", "fp32")
    record = FindingRecord(key, "fv1", "fv1 seed=3", verdict, "cpu", "flex")
    stats = {"cases": 3, "seconds": 1.5, "timeline": [[0.0, 0, 0], [1.5, 3, 0]], "shares": {}}
    counts = ("compiled", "compiled_by_workers", "traced", "per_thousand_cases", "later_per_thousand_cases")
    stats |= dict.fromkeys((*counts, "kinds", "put_off", "dropped", "cache_bytes"), 0)

    row = {"subject": "flex", "mode": "ahead", "restarts": 0, "first_error": "", "stats": stats}
    gpu_campaign.show(row | {"findings": [msgspec.to_builtins(record)]})

    assert "finding, 1 cases, failed 0 of 0 fresh runs:\n    nonfinite: dq[0] is inf\n" in capsys.readouterr().out
