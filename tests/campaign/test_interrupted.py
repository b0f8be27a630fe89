"""An interrupted campaign says what it judged, and the next call with the same folder judges the rest."""

from collections import Counter

import pytest

from flashverify.campaign.commands.terminal import verdict_lines
from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.events import Progress
from flashverify.case import parse_case
from flashverify.errors import UsageError
from flashverify.judge.record import Summary
from flashverify.report.content import build_report
from tests.campaign.test_engine import campaign, config


def interrupted(out, after, **changes):
    """A campaign that is interrupted once it has judged so many cases."""
    engine = Engine(config(out, "slow-clean", **changes), (lambda e: told(e),))

    def told(event):
        if isinstance(event, Progress) and event.cases >= after:
            engine.stop()

    return engine.run()


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"corpus": True, "max_cases": 60, "workers": 2}, "of 30 corpus cases judged"),
        ({"kind": "run", "max_cases": None, "workers": 1}, "of 20 matrix cases judged"),
    ],
)
def test_the_rest_is_judged_by_the_next_call(tmp_path, changes, words):
    out = tmp_path / "run"
    first = interrupted(out, 4, **changes)
    headline = verdict_lines(first, (), {}, out, ())
    assert (first.stopped, first.exit_code) == ("interrupted", 130)
    assert first.part == f"{first.cases} {words}"
    assert headline[0] == f"INTERRUPTED: {first.part}"
    assert headline[-1].startswith("unfinished: with --out ")
    assert any(first.part in note for note in build_report(open_run(out)).headline.notes)
    other = {"kind": "fuzz" if changes.get("kind") == "run" else "run"}
    with pytest.raises(UsageError, match="it holds a run of"):
        campaign(out, "slow-clean", **(changes | other))

    summary, _ = campaign(out, "slow-clean", **changes)

    judged = Counter((r.origin, r.case) for r in open_run(out).results())
    assert (summary.exit_code, summary.part) == (0, "")
    assert judged.total() == len(judged) == summary.cases == (changes["max_cases"] or 20)
    if changes["max_cases"] is None:
        cases = [parse_case(r.case) for r in open_run(out).results()]
        assert [(q, k) for q in (1, 2, 7, 16, 30) for k in (1, 15, 18, 33)] == [(c.seq_q, c.seq_k) for c in cases]
        with pytest.raises(UsageError, match="finished run"):
            campaign(out, "slow-clean", **changes)


@pytest.mark.parametrize(("findings", "verdict"), [(0, "PASS: no finding"), (2, "FAIL: 2 findings")])
def test_a_verdict_over_a_part_says_so(tmp_path, findings, verdict):
    part = "120 of 520 matrix cases judged"
    summary = Summary(120, 0, 120, findings, 0, 60.0, "budget", int(findings > 0), part)
    assert verdict_lines(summary, (), {}, tmp_path, ())[0] == f"{verdict}; only {part}"
