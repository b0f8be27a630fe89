"""One marked test: its cases are judged in the process that the plugin keeps, and a failure is said in the words of a finding."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from flashverify.campaign.commands.replay import result_code
from flashverify.campaign.supervisor.first_cases import inability_in
from flashverify.case.text import parse_case
from flashverify.errors import FlashverifyError
from flashverify.judge.verdict import Status
from flashverify.pytest_plugin.explaining import explained
from flashverify.pytest_plugin.failure import failure_text
from flashverify.pytest_plugin.seen import worst_of
from flashverify.pytest_plugin.standing import Standing
from flashverify.pytest_plugin.stash import runtime_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.judge.verdict import CaseResult
    from flashverify.pytest_plugin.groups import Group

__all__ = ["case_of", "interpreting", "judge_group"]


def case_of(request: pytest.FixtureRequest) -> Case:
    """The case of a test that takes `attention_case`."""
    group: Group | None = getattr(request, "param", None)
    if group is None:
        raise _failed("attention_case is not accepted without @pytest.mark.flashverify(subject, cases=...)")
    try:
        found = runtime_of(request.config).cases(group)
    except FlashverifyError as error:
        raise _failed(str(error)) from None
    at = group.single or 0
    if at >= len(found):
        pytest.skip("flashverify: the subject accepts no more cases")
    request.node.user_properties.append(("flashverify_case", found[at]))
    return parse_case(found[at])


def judge_group(item: pytest.Function, group: Group) -> None:
    """Judge the cases of a group; returns where every case passes."""
    try:
        runtime = runtime_of(item.config)
        results = _judged(item, group)
        failing = [result for result in results if result.failures]
        properties = {"subject": group.name.shown, "seed": str(runtime.seed)}
        if (worst := worst_of(results)) is not None:
            properties |= {"ratio": f"{worst.value:.6g}", "case": worst.case}
        verdict = Standing(runtime, group, results)
        findings = explained(runtime, group, item.nodeid, failing) if failing and not verdict.own_case else []
        verdict.hold(findings)
        if findings:
            lead = findings[0].record
            found = lead.diagnosis
            properties |= {"case": lead.case, "diagnosis": found.name if found is not None else ""}
    except FlashverifyError as error:
        raise _failed(f"no verdict: {error}") from None
    item.user_properties += [(f"flashverify_{name}", text) for name, text in properties.items() if text]
    if verdict.unknown or verdict.exceeded:
        text = failure_text(verdict.unknown, verdict.exceeded, failing, len(results), group, runtime.seed)
        pytest.fail(text, pytrace=False)
    if failing:
        pytest.xfail(verdict.reason)
    _require_verdict(results)


def _judged(item: pytest.Function, group: Group) -> list[CaseResult]:
    runtime = runtime_of(item.config)
    results = []
    for text in runtime.cases(group):
        result = runtime.judge(group, text)
        lacks = inability_in(result) if result.failures else None
        if lacks is not None:
            raise _failed(f"no verdict: the subject {group.name.shown} could not run: {lacks.reason}. {lacks.advice}")
        runtime.seen.add(group.name.shown, parse_case(text).dtype, result)
        results.append(result)
    return results


def _require_verdict(results: list[CaseResult]) -> None:
    """A test that judged nothing is no pass."""
    if not results:
        pytest.skip("flashverify: the subject accepts no more cases")
    refused = [result.unsupported for result in results if result.unsupported is not None]
    if len(refused) == len(results):
        pytest.skip(f"flashverify: the subject does not accept the case: {refused[0]}")
    for result in results:
        if result_code(result) and result.unsupported is None:
            message = next((v.message for v in result.verdicts if v.status is Status.ERROR), "no check answered")
            raise _failed(f"no verdict: {message}\n{result.case}")


def _failed(message: str) -> BaseException:
    """The end of a test, of which pytest shows the message alone."""
    return pytest.fail.Exception(f"flashverify: {message}", pytrace=False)


@contextlib.contextmanager
def interpreting(config: pytest.Config) -> Iterator[None]:
    """The corrected interpreter, where the kernels of this process are interpreted and it is not open yet."""
    from flashverify.api.interpreting import corrected_interpreter, interpretable

    if not interpretable():
        yield
        return
    with corrected_interpreter(numerics=runtime_of(config).numerics):
        yield
