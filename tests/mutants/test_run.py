"""The run over mutants: what becomes of each kind, and what a kill, another header or a stop leave behind."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from flashverify.case.case import Case
from flashverify.errors import UsageError
from flashverify.mutants.runner import summary
from flashverify.mutants.runner.records import MutantStatus
from flashverify.mutants.runner.run import MutantRun, run_mutants

HERE = Path(__file__).parent
sys.path.append(str(HERE))  # the workers find the toolkit by this process's path

from planted_toolkit import SPEC, plant  # noqa: E402

LIMIT = 2.0
KINDS = {
    "shown": plant("shown", "long keys", outputs=("o",), semantics="keys-past-the-end"),
    "misnamed": plant("misnamed", "long keys", semantics="head-map"),
    "elsewhere": plant("elsewhere", "long keys", outputs=("dq",)),
    "harmless": plant("harmless", "clean"),
    "legitimate": plant("legitimate", "clean", control=True),
    "flagged": plant("flagged", "long keys", control=True),
    "crashing": plant("crashing", "segfault", outputs=("o",)),
    "hanging": plant("hanging", "loop"),
    "greedy": plant("greedy", "memory"),
    "stillborn": plant("stillborn", "does not compile"),
    "raising": plant("raising", "raises for long keys"),
    "unconcerned": plant("unconcerned", "wrong everywhere", needs=("paged",)),
    "compiled": plant("compiled", "long keys", gpu=True),
    "no-judge": plant("no_judge", "harness"),
    "stale": dataclasses.replace(plant("stale", "clean"), before="no such text"),
    "discredited": plant("discredited", "wrong everywhere", subject="bundled-chunked"),
    "claimed": plant("claimed", "clean"),
    "refuted": plant("refuted", "long keys"),
}
EXPECTED = {
    "shown": ("found", "accuracy", "bound", "o"),
    "misnamed": ("found", "accuracy", "bound", "lse"),
    "elsewhere": ("survived", "", "", ""),
    "harmless": ("survived", "", "", ""),
    "legitimate": ("quiet", "", "", ""),
    "flagged": ("false-alarm", "accuracy", "bound", "lse"),
    "crashing": ("found", "crash", "SIGSEGV", ""),
    "hanging": ("found", "hang", "hang", ""),
    "greedy": ("found", "crash", "memory", ""),
    "stillborn": ("invalid", "", "", ""),
    "raising": ("found", "exception", "exception", "CompilationError"),
    "unconcerned": ("survived", "", "", ""),
    "compiled": ("not-run", "", "", ""),
    "no-judge": ("error", "", "", ""),
    "stale": ("error", "", "", ""),
    "discredited": ("error", "", "", ""),
    "claimed": ("equivalent", "", "", ""),
    "refuted": ("error", "accuracy", "bound", "lse"),
}


def config(out, names, **changes):
    mutants = tuple((KINDS[name], "control" if KINDS[name].control else "curated") for name in names)
    fields = {"limit": LIMIT, "cases": 12, "workers": 2, "memory": 150 * 2**20, "toolkit": SPEC, "equivalent": {}}
    return MutantRun(mutants=mutants, out=out, **(fields | changes))


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    out = tmp_path_factory.mktemp("mutants") / "run"
    known = {"claimed": "a comment", "refuted": "a comment"}
    run = config(out, KINDS, equivalent=known, include_equivalent=True, corpus=(Case(seq_q=3, seq_k=40),))
    return run, {result.name.replace("no_judge", "no-judge"): result for result in run_mutants(run)}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_each_kind_of_mutant_gets_its_status(judged, name):
    result = judged[1][name]

    assert EXPECTED[name] == (result.status.value, result.check, result.error, result.output)


@pytest.mark.slow
def test_a_detecting_case_is_made_minimal_and_its_diagnosis_compared(judged):
    shown, misnamed = judged[1]["shown"], judged[1]["misnamed"]

    assert shown.case.startswith("fv1 seq_q=3 seq_k=40")  # the corpus is judged first
    assert (shown.cases, shown.elements) == (1, 18)
    assert "seq_k=17" in shown.minimal
    assert (shown.named, misnamed.named) == ("right", "wrong")
    assert shown.line > 0


def test_reasons_are_given_where_a_mutant_was_not_judged(judged):
    results = judged[1]

    assert "occurs 0 times" in results["stale"].reason
    assert "the unmutated subject fails too" in results["discredited"].reason
    assert "none of" in results["unconcerned"].reason
    assert "known to be equivalent, yet found" in results["refuted"].reason
    assert "GPU" in results["compiled"].reason


def test_the_summary_adds_up(judged):
    results = tuple(judged[1].values())

    figures = json.loads(json.dumps(summary.as_json(results)))

    counts = {key: figures["curated"][key] for key in ("total", "found", "equivalent", "invalid", "not_run")}
    assert counts == {"total": 16, "found": 6, "equivalent": 1, "invalid": 1, "not_run": 1}
    assert {"no_judge", "stale", "discredited", "refuted"} == {e["name"] for e in figures["curated"]["errors"]}
    assert figures["curated"]["score"] == 6 / 9
    assert {"elsewhere", "harmless", "unconcerned"} == {s["name"] for s in figures["curated"]["survivors"]}
    assert {"name", "file", "line"} <= figures["curated"]["survivors"][0].keys()
    assert figures["generated"]["total"] == 0
    assert (
        figures["controls"]["total"],
        figures["controls"]["quiet"],
        [alarm["name"] for alarm in figures["controls"]["false_alarms"]],
    ) == (2, 1, ["flagged"])
    assert figures["checks"] == {"accuracy bound": 2, "crash SIGSEGV": 1, "crash memory": 1, "hang": 1, "exception": 1}
    assert (figures["diagnosis"]["right"], figures["diagnosis"]["wrong"]) == (1, 1)
    assert figures == json.loads((judged[0].out / "summary.json").read_text(encoding="utf-8"))
    assert 1 == figures["exit_code"] == summary.exit_code(results)
    text = summary.as_text(results)
    assert "controls: 1 of 2 quiet" in text
    assert "survived: harmless (launch.py:" in text


def test_exit_codes_tell_all_found_from_nothing_judged(judged):
    results = judged[1]

    assert summary.exit_code([results["shown"], results["legitimate"], results["stillborn"]]) == 0
    assert summary.exit_code([results["shown"], results["flagged"]]) == 1
    assert summary.exit_code([results["compiled"], results["stillborn"]]) == 3


def test_a_finished_run_is_not_judged_again_and_another_header_is_refused(judged):
    run, results = judged
    new = []

    again = run_mutants(run, each=lambda result, _left: new.append(result))

    assert (tuple(results.values()), []) == (again, new)
    with pytest.raises(UsageError, match=r"another header \(seed: 0, now 5, limit: 2.0, now 3.0\)"):
        run_mutants(dataclasses.replace(run, seed=5, limit=3.0))


def test_a_folder_that_holds_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")

    with pytest.raises(UsageError, match="no run over mutants"):
        run_mutants(config(tmp_path, ["shown"]))


def test_a_run_that_is_stopped_leaves_the_rest(tmp_path):
    results = run_mutants(config(tmp_path / "run", ["hanging"], limit=60.0), stopped=lambda: True)

    assert results == ()


CHILD = """
import sys
sys.path.append({here!r})
from test_run import config
from flashverify.mutants.runner.run import run_mutants
import pathlib
run_mutants(config(pathlib.Path({out!r}), {names!r}, workers=1))
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_a_killed_run_goes_on_where_it_was(tmp_path):
    out, names = tmp_path / "run", ["shown", "raising", "hanging", "harmless"]
    code = CHILD.format(here=str(HERE), out=str(out), names=names)
    process = subprocess.Popen([sys.executable, "-c", code], process_group=0)
    results = out / "results.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not results.exists() or results.read_bytes().count(b"\n") < 2):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = results.read_bytes()
    results.write_bytes(before + b'{"name":"torn')
    new = []

    run = config(out, names, workers=1)
    found = run_mutants(run, each=lambda result, _left: new.append(result.name))

    assert names == [result.name for result in found]
    assert MutantStatus.FOUND is found[2].status
    assert "harmless" in new
    assert not {"shown", "raising"} & set(new)
    lines = results.read_bytes().splitlines()
    assert before.splitlines() == lines[: before.count(b"\n")]
    assert names == sorted((msgspec.json.decode(line)["name"] for line in lines), key=names.index)
