"""The pytest plugin: `@pytest.mark.flashverify(subject, cases=200)` and the fixture `attention_case`; docs/pytest.md describes it.

Every project that has flashverify installed loads this module, so it imports nothing but pytest until a test asks for more.
PYTEST_DONT_REWRITE: it has no assertion, and may be imported before pytest starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from flashverify.pytest_plugin.stash import RUNTIME, SHARED, USED, leave_word, marked, shared_folder

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from flashverify.case.case import Case

GROUP = "flashverify_group"
"""Name of the parameter that a test of a group of cases has."""
CASE = "attention_case"
"""Name of the parameter that a test of its own cases has."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the plugin."""
    group = parser.getgroup("flashverify", "attention kernels under flashverify")
    group.addoption(
        "--flashverify-seed", metavar="N|random", help="seed of the drawn cases [default: 0, the same ones every time]"
    )
    group.addoption("--flashverify-cases", metavar="N", help="cases that each marked test draws, whatever it asks for")
    group.addoption(
        "--flashverify-profile", metavar="cpu|gpu|long", help="how large drawn cases are, whatever a test asks for"
    )
    group.addoption(
        "--flashverify-baseline",
        metavar="FILE",
        help="failures that may stand [default: flashverify-baseline.toml beside pyproject.toml, if it is there]",
    )
    group.addoption(
        "--flashverify-update-baseline",
        action="store_true",
        help="append what it does not know; each entry is refused until you give it a reason and a link",
    )
    group.addoption(
        "--flashverify-no-explain",
        action="store_true",
        help="neither make failing cases smaller nor name their cause; saves about a minute of the first failure",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line(
        "markers",
        "flashverify(subject, cases=200, profile=None, checks=None): judge an attention kernel on drawn cases in groups, on the "
        "'standard' matrix, or on each of a list of cases",
    )
    given = getattr(config, "workerinput", {}).get("flashverify_seed")
    if given is not None:  # a worker of xdist parses the command line again
        config.option.flashverify_seed = given
    elif config.getoption("--flashverify-seed") == "random":
        import secrets

        config.option.flashverify_seed = str(secrets.randbits(32))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the processes that judged."""
    if (runtime := config.stash.get(RUNTIME, None)) is not None:
        runtime.close()
    if (folder := config.stash.get(SHARED, None)) is not None:
        folder.cleanup()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A marked test becomes one test per group of cases, or per case."""
    if metafunc.definition.get_closest_marker("flashverify") is not None:
        from flashverify.pytest_plugin.collection import parametrize

        parametrize(metafunc)


@pytest.fixture(name=GROUP)
def _group(request: pytest.FixtureRequest) -> object:
    """The cases that a marked test stands for; `pytest_pyfunc_call` judges them."""
    return request.param


@pytest.fixture(name=CASE)
def _attention_case(request: pytest.FixtureRequest) -> Case:
    """A case that the subject of the test's marker accepts; the test itself decides about it."""
    from flashverify.pytest_plugin.running import case_of

    return case_of(request)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Judges the group of a marked test before its body runs; opens the corrected interpreter around a test of its own cases."""
    parameters = getattr(getattr(pyfuncitem, "callspec", None), "params", {})
    if GROUP in parameters:
        from flashverify.pytest_plugin.running import judge_group

        judge_group(pyfuncitem, parameters[GROUP])
    elif CASE in parameters:
        from flashverify.pytest_plugin.running import interpreting

        with interpreting(pyfuncitem.config):
            return (yield)
    return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A marked test that is not called as a function, as a method of unittest, would pass without a case."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if GROUP not in parameters and CASE not in parameters and item.get_closest_marker("flashverify") is not None:
        pytest.fail(
            "flashverify: @pytest.mark.flashverify is not accepted here: it marks test functions", pytrace=False
        )


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """What the cases are judged on, where any test has some."""
    if USED not in config.stash:
        return []
    from flashverify.pytest_plugin.header import header_lines

    return header_lines(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Under xdist the workers share a seed, and a folder, so that one of them explains a failure for all."""
    node.workerinput["flashverify_seed"] = node.config.getoption("--flashverify-seed")
    node.workerinput["flashverify_folder"] = str(shared_folder(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: Sequence[str]) -> None:  # noqa: ARG001
    """What the cases are judged on, said once by the process that starts the workers."""
    from flashverify.pytest_plugin.header import announce

    announce(node.config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leaves word for the process that started this worker that there are marked tests."""
    if USED in session.config.stash and hasattr(session.config, "workerinput"):
        leave_word(session.config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist hands over what it saw."""
    if (runtime := session.config.stash.get(RUNTIME, None)) is not None:
        runtime.hand_over()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was judged, in a few lines; nothing where nothing was."""
    if hasattr(config, "workerinput"):
        return  # the process that started this worker says it for all
    if RUNTIME in config.stash or marked(config):
        from flashverify.pytest_plugin.summary import write_summary

        write_summary(terminalreporter, config)
