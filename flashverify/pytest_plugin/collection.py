"""A marked test, parametrised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flashverify.errors import UsageError
from flashverify.pytest_plugin import CASE, GROUP
from flashverify.pytest_plugin.groups import groups_of, single_cases_of
from flashverify.pytest_plugin.naming import name_of
from flashverify.pytest_plugin.request import asked_of
from flashverify.pytest_plugin.stash import USED, runtime_of

if TYPE_CHECKING:
    from flashverify.pytest_plugin.groups import Group

__all__ = ["parametrize"]


def parametrize(metafunc: pytest.Metafunc) -> None:
    """One test per group of cases, or per case where the test takes `attention_case`."""
    refused = ""
    try:
        groups = _groups(metafunc)
    except UsageError as error:
        refused = str(error)
    if refused:  # after the except, so that the error has no other one behind it
        pytest.fail(f"flashverify: {refused}", pytrace=False)
    metafunc.config.stash[USED] = True
    name = CASE if CASE in metafunc.fixturenames else GROUP
    if name not in metafunc.fixturenames:
        metafunc.fixturenames.append(name)
    metafunc.parametrize(name, groups, ids=[group.id for group in groups], indirect=True)


def _groups(metafunc: pytest.Metafunc) -> list[Group]:
    config = metafunc.config
    mark = metafunc.definition.get_closest_marker("flashverify")
    assert mark is not None
    asked = asked_of(
        mark, number=config.getoption("--flashverify-cases"), profile=config.getoption("--flashverify-profile")
    )
    name = name_of(asked.subject, metafunc.module, config.rootpath)
    if CASE not in metafunc.fixturenames:
        return list(groups_of(asked, name, runtime_of(config).baseline))
    if not asked.number and not asked.listed:
        raise UsageError(
            f"cases='standard' is not accepted with {CASE}: a number, or the list flashverify.standard_cases(subject)"
        )
    if asked.checks:
        raise UsageError(f"checks= is not accepted with {CASE}: the test itself decides about its case")
    return list(single_cases_of(asked, name))
