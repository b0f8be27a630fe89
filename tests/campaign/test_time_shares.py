"""What is compiled and where the time of a GPU's workers goes, counted and put into words."""

from itertools import pairwise

import pytest

from flashverify.campaign import environment
from flashverify.campaign.commands import where
from flashverify.campaign.commands.panel import status_text
from flashverify.campaign.commands.settings import Settings
from flashverify.campaign.commands.where import default_compilers
from flashverify.campaign.protocol import CaseJudged, Spent
from flashverify.campaign.store.stats import read_stats, stats_sentence, write_stats
from flashverify.campaign.supervisor.events import Progress
from flashverify.campaign.supervisor.time_shares import TimeShares
from flashverify.judge.verdict import CaseResult


def judged(seconds, **spent):
    return CaseJudged("s", CaseResult("fv1", "s", "gpu", (), seconds=seconds), spent=Spent(**spent))


def counts():
    """Two workers for 200 seconds: 100 cases of one second each in the first 120 seconds, and 100 in the rest."""
    shares = TimeShares(workers=2, compilers=3)
    for second in range(200):
        shares.judged(judged(1.0, compiled=int(second < 10), compiling=0.5 * (second < 10), oracle=0.25))
        shares.due(1.2 * second if second <= 100 else 120 + 0.8 * (second - 100), ahead=50 + (second >= 150))
    return shares.stats(200.0, ahead=51, explaining=40.0)


def test_shares_are_of_the_time_of_all_workers_and_the_rest_is_idle():
    stats = counts()

    assert stats.shares == {"judging": 0.3625, "oracle": 0.125, "compiling": 0.0125, "explaining": 0.1, "idle": 0.4}
    assert (stats.cases, stats.compiled, stats.compiled_by_workers) == (200, 61, 10)


def test_compilations_are_counted_per_thousand_cases_in_all_and_after_two_minutes():
    stats = counts()

    assert stats.per_thousand_cases == 305.0
    assert stats.later_per_thousand_cases == pytest.approx(1000 / 99, abs=0.1)


def test_cases_that_were_judged_without_a_check_are_counted_and_said():
    shares = TimeShares(workers=1, compilers=1)
    for unasked in ((), ("reuse",), ("reuse", "relations")):
        result = CaseResult("fv1", "s", "gpu", (), seconds=1.0, unasked=unasked)
        shares.judged(CaseJudged("s", result))
    stats = shares.stats(4.0)

    assert stats.unasked == 2
    assert "2 cases judged without a check" in stats_sentence(stats)


def test_the_timeline_has_equal_steps_and_is_never_long():
    shares = TimeShares(workers=1, compilers=0)
    for second in range(0, 40_000, 5):
        shares.due(float(second), ahead=second)
    timeline = shares.stats(40_000.0).timeline

    assert 100 < len(timeline) < 360
    gaps = {round(b - a) for (a, *_), (b, *_) in pairwise(timeline)}
    assert len(gaps) <= 2
    assert timeline[-1][0] > 39_000


def test_counts_are_stored_and_damaged_ones_are_none(tmp_path):
    stats = counts()
    write_stats(tmp_path, stats)
    assert read_stats(tmp_path) == stats

    (tmp_path / "stats.json").write_text("{")
    assert read_stats(tmp_path) is None
    assert read_stats(tmp_path / "elsewhere") is None


def test_the_status_line_and_the_report_say_them():
    stats = counts()
    nothing = {"unsupported": 0, "errors": 0, "findings": 0, "restarts": 0, "worst": {}}
    line = status_text(Progress(elapsed=200.0, cases=200, rate=1.0, stats=stats, **nothing))

    assert "61 compiled, idle 40% judging 36% oracle 12%" in line
    assert "compiled" not in status_text(Progress(elapsed=200.0, cases=200, rate=1.0, **nothing))
    sentence = stats_sentence(stats)
    assert sentence.startswith("61 kernels compiled, 305 per thousand cases (10 after the first 2 minutes), 10 times")
    assert "judging 36 %" in sentence


@pytest.mark.parametrize(
    ("kind", "device", "workers", "asked", "expected"),
    [
        ("fuzz", "cuda", 14, None, 14),
        ("fuzz", "cuda", 14, 0, 0),
        ("fuzz", "cuda", 1, None, 0),
        ("fuzz", "cpu", 14, 4, 0),
        ("run", "cuda", 14, 4, 0),
    ],
)
def test_processes_compile_ahead_of_a_search_on_a_gpu_alone(kind, device, workers, asked, expected):
    assert default_compilers(kind, device, workers, asked) == expected


@pytest.mark.parametrize(("processors", "asked", "expected"), [(3, None, 0), (4, None, 2), (3, 1, 1)])
def test_on_few_processors_nothing_is_compiled_ahead_unless_it_is_asked_for(processors, asked, expected, monkeypatch):
    monkeypatch.setattr(environment, "cpu_count", lambda: processors)
    monkeypatch.setattr(environment, "resolve_device", lambda device: "cuda")
    monkeypatch.setattr(where, "visible_gpus", lambda environ: ("0", "1"))

    assert where.here("fuzz", Settings(compilers=asked), ("bundled",)).compilers == expected
