"""The registry of checks: every class of failure has a title, no check fails by another class, and the page says the same."""

import ast
import dataclasses
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import flashverify
from flashverify import parse_case
from flashverify.campaign.supervisor.process import DEVICE_LOST, death_verdict, hang_verdict
from flashverify.checks import CHECK_SPECS, Plan, engine, judge_case, registry
from flashverify.checks.document import document
from flashverify.checks.outcomes import OUTCOMES
from flashverify.checks.registry import error_class, failure_title
from flashverify.checks.relations import RELATIONS
from flashverify.checks.spec import CheckSpec, ErrorClass, Need
from flashverify.interpreter.reports import Kind
from flashverify.judge.verdict import Status, Verdict
from flashverify.subjects.blame import subject_code, traceback_text
from flashverify.xray.record import ERRORS
from tests.checks.naive import make

ROOT = Path(flashverify.__file__).parent
CASE = parse_case("fv1 dtype=fp32 seq_q=3 seq_k=3")


def declared():
    yield from ((spec.name, error) for spec in CHECK_SPECS for error in spec.errors)
    yield from ((name, error) for name, errors in OUTCOMES.items() for error in errors)


def test_every_class_of_failure_has_a_name_of_its_own_a_title_and_a_sentence():
    pairs = [(check, error.name) for check, error in declared()]

    assert len(set(pairs)) == len(pairs) >= 56
    for check, error in declared():
        title = failure_title(check, error.name.replace("*", "X"), "dq")
        assert "fails:" not in title
        assert not title.endswith("."), title
        assert error.sentence, error
        assert not error.sentence.endswith(".")


def test_titles_name_the_output_and_the_signal():
    assert failure_title("accuracy", "bound", "dk") == "dk is outside its bound"
    assert failure_title("relations", "hull", "o") == "o lies outside the values of V that its row sees"
    assert failure_title("crash", "SIGSEGV", "") == "the process crashes with SIGSEGV"
    assert failure_title("crash", "memory", "") == "the process uses too much memory"
    assert failure_title("exception", "exception", "RuntimeError") == "RuntimeError is raised"


def test_a_class_of_an_older_version_keeps_its_name():
    assert failure_title("accuracy", "of-old", "o") == "accuracy fails: of-old o"


@pytest.mark.parametrize("code", [-11, -9, -6, -63, 1, 139, DEVICE_LOST])
def test_whatever_ends_a_process_has_a_title(code):
    verdict = death_verdict(code, "")

    assert error_class(verdict.check, verdict.error) is not None
    assert error_class("crash", death_verdict(0, "", 1 << 30).error) is not None
    assert error_class("hang", hang_verdict(1.0).error) is not None


def emitted():
    """(check, error) of every verdict whose two names stand in the source, and of the lists that others are built from."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            given = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
            name = getattr(node.func, "id", "")
            if name == "Verdict" and given.get("check") and given.get("error"):
                yield given["check"], given["error"]
            first = node.args[0] if node.args else None
            if path.parent.name == "relations" and name in ("failure", "within", "bitwise"):
                if isinstance(first, ast.Constant):
                    yield "relations", first.value
            elif path.parent.name == "reuse" and name == "failure" and isinstance(first, ast.Constant):
                yield "reuse", first.value
    yield from (("sanitizer", kind) for kind in typing.get_args(Kind))
    yield from (("counting", error) for error in ERRORS)


@pytest.mark.slow
def test_every_class_that_the_source_names_is_declared():
    found = set(emitted())

    assert {error for check, error in found if check == "relations"} >= {"double-v", "linear-do", "ds-sum", "alone"}
    assert {error for check, error in found if check == "reuse"} >= {"saved-state", "graph", "backward"}
    assert len(found) >= 30
    assert [pair for pair in sorted(found) if error_class(*pair) is None] == []


def only(monkeypatch, spec):
    monkeypatch.setattr(engine, "CHECK_SPECS", (spec,))
    return judge_case(make(), CASE, dataclasses.replace(Plan(), checks=(spec.name,)))


def test_a_check_that_fails_by_a_class_that_it_does_not_declare_gives_no_verdict(monkeypatch):
    memory = CHECK_SPECS[0]
    stray = Verdict(check="memory", status=Status.FAIL, output="o", error="smudged")
    result = only(monkeypatch, dataclasses.replace(memory, run=lambda _base, _names: [stray]))

    assert [(v.check, v.status) for v in result.verdicts] == [("harness", Status.ERROR)]
    assert "memory declares no class of failure 'smudged'" in result.verdicts[0].message


@pytest.mark.parametrize("needs", [(), (Need.PASSES,)])
def test_an_exception_is_the_subjects_where_its_code_raised_it_and_the_harnesss_elsewhere(monkeypatch, needs):
    def broken(_base, _names):
        raise ZeroDivisionError("no")

    def of_subject(_base, _names):
        with subject_code():
            broken(_base, _names)

    memory = dataclasses.replace(CHECK_SPECS[0], needs=needs)
    (theirs,) = only(monkeypatch, dataclasses.replace(memory, run=of_subject)).verdicts
    assert (theirs.check, theirs.status, theirs.output) == ("exception", Status.FAIL, "ZeroDivisionError")
    (ours,) = only(monkeypatch, dataclasses.replace(memory, run=broken)).verdicts
    assert (ours.check, ours.status, ours.error) == ("harness", Status.ERROR, "exception")
    assert ours.message == "the harness failed in the check memory: ZeroDivisionError: no"
    for verdict in (ours, theirs):
        assert verdict.traceback.startswith("Traceback (most recent call last):")
        assert verdict.traceback.endswith("ZeroDivisionError: no")


def test_a_traceback_is_capped_at_its_end():
    error = ValueError("x" * 9000 + "end")

    assert len(traceback_text(error)) == 4000
    assert traceback_text(error).endswith("end")


def test_a_check_is_its_spec_and_one_line_of_the_registry(monkeypatch):
    """What a new check takes: plans, judging and titles follow from the registry."""
    wrong = Verdict(check="sums", status=Status.FAIL, output="o", error="odd")
    spec = CheckSpec(
        name="sums",
        question="Is the sum even?",
        errors=(ErrorClass("odd", "{output} has an odd sum", "the sum of an output is odd"),),
        run=lambda base, _names: [wrong] if base.case.seq_q == 3 else [],
    )
    code = "\n".join(path.read_text() for path in (ROOT / "checks").glob("*.py") if path.name != "padding.py")
    assert code.count("padding.SPEC") == 1

    monkeypatch.setattr(engine, "CHECK_SPECS", (spec,))
    monkeypatch.setitem(registry._ERRORS, "sums", spec.errors)
    monkeypatch.setattr("flashverify.checks.plan.CHECKS", ("sums",))
    monkeypatch.setitem(registry._SPECS, "sums", spec)

    assert judge_case(make(), CASE, Plan(checks=("sums",))).failures == (wrong,)
    assert failure_title("sums", "odd", "o") == "o has an odd sum"


def test_a_relation_is_declared_where_it_is_computed():
    assert {spec.run.__module__.rpartition(".")[0] for spec in RELATIONS} == {"flashverify.checks.relations"}
    for spec in RELATIONS:
        assert f'name="{spec.name}"' in Path(sys.modules[spec.run.__module__].__file__).read_text()


def test_the_page_is_what_the_registry_says():
    page = ROOT.parent / "docs/checks.md"

    assert page.read_text() == document(), "python -m flashverify.checks.document > docs/checks.md"


def test_the_registry_needs_no_torch():
    code = "import sys, flashverify.checks.registry, flashverify.report.content; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
