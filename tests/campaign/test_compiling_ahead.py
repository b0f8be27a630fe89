"""A search on a GPU, pretended: which process compiles what, and what is judged meanwhile."""

import os

import pytest

from flashverify.campaign.kernel_cache import CACHE_VARIABLE
from flashverify.campaign.store.stats import read_stats
from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor import gpu
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.case.text import parse_case
from flashverify.report.content import build_report


@pytest.fixture
def log(tmp_path, monkeypatch):
    folder = tmp_path / "kernels"
    folder.mkdir()
    monkeypatch.setattr(gpu, "architecture", lambda: "")  # the workers say it
    monkeypatch.setenv("PRETENDED_KERNELS", str(folder))
    return folder / "log"


def configured(out, subject, **changes):
    given = {"workers": 2, "compilers": 1, "batch": 40, "case_limit": 20.0}
    return CampaignConfig(
        kind="fuzz",
        subjects=(subject,),
        out=out,
        device="cuda",
        toolkit="compiling_toolkit:toolkit",
        **(given | changes),
    )


def search(out, subject, **changes):
    summary = Engine(configured(out, subject, **changes)).run()
    return summary, read_stats(out), [parse_case(result.case) for result in open_run(out).results()]


@pytest.mark.slow
def test_kernels_are_compiled_by_processes_that_judge_nothing(tmp_path, log):
    summary, stats, cases = search(tmp_path / "run", "clean", max_cases=150)

    assert (summary.exit_code, summary.cases) == (0, 150)
    compiled = [line.split() for line in log.read_text().splitlines()]
    assert {who for who, _ in compiled} == {"ahead"}
    assert (log.parent / "niceness-ahead").read_text() == "19", "the workers have the processors first"
    assert (stats.compiled_by_workers, stats.compilers) == (0, 1)
    assert 0 < stats.compiled <= len(compiled)  # the last one may not have come back before the end
    assert {f"dim-{case.dim_v}" for case in cases} <= {key for _, key in compiled}
    assert stats.kinds >= 1
    report = build_report(open_run(tmp_path / "run"))
    assert f"{stats.compiled} kernels compiled" in report.headline.notes[-1]


@pytest.mark.slow
@pytest.mark.thorough
def test_the_workers_have_the_processors_first(tmp_path, log):
    search(tmp_path / "ahead", "clean", max_cases=20)
    log.unlink()
    for kernel in log.parent.glob("dim-*"):
        kernel.unlink()
    search(tmp_path / "each", "clean", compilers=0, max_cases=20)

    ahead, worker = (int((log.parent / f"niceness-{who}").read_text()) for who in ("ahead", "worker"))
    assert worker == os.nice(0) <= ahead == 19


@pytest.mark.slow
@pytest.mark.thorough
def test_a_kind_that_an_earlier_search_compiled_is_drawn_from_at_once(tmp_path, log):
    environment = {CACHE_VARIABLE: str(tmp_path)}
    _, stats, _ = search(tmp_path / "run", "clean", max_cases=150, environment=environment)
    compiled = log.read_text()
    engine = Engine(configured(tmp_path / "again", "clean", max_cases=10, seed=3, environment=environment))

    assert len(engine._gpu.compilers.readiness.kinds("clean")) == stats.kinds >= 1
    engine.run()
    assert log.read_text() == compiled


@pytest.mark.slow
@pytest.mark.thorough
def test_without_such_processes_workers_compile_what_they_launch(tmp_path, log):
    _, stats, cases = search(tmp_path / "run", "clean", compilers=0, max_cases=20, batch=10)

    assert len(cases) == 20
    assert {line.split()[0] for line in log.read_text().splitlines()} == {"worker"}
    assert stats.compiled == stats.compiled_by_workers > 0


@pytest.mark.slow
def test_a_case_that_kills_the_compiler_is_judged_by_a_worker(tmp_path, log):
    _, stats, cases = search(tmp_path / "run", "breaks-compilers", max_cases=60)

    assert len(cases) == 60
    assert any(case.dim_v == 8 for case in cases)
    assert {tuple(line.split()) for line in log.read_text().splitlines()} >= {("worker", "dim-8"), ("ahead", "dim-16")}
    assert stats.compiled_by_workers >= 1


@pytest.mark.slow
@pytest.mark.thorough
def test_a_search_that_goes_on_judges_no_case_twice_and_none_more_than_asked_for(tmp_path, log):
    search(tmp_path / "run", "clean", max_cases=40)
    (tmp_path / "run" / "summary.json").unlink()  # as if it had been killed
    summary, stats, cases = search(tmp_path / "run", "clean", max_cases=110)

    judged = [(each.origin, each.case) for each in open_run(tmp_path / "run").results()]
    assert summary.cases == len(cases) == len(judged) == len(set(judged)) == 110
    assert {origin.split()[0] for origin, _ in judged} == {"batch", "compiled"}
    assert stats.compiled_by_workers == 0
