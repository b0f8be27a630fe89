"""Where a mistake may be: those functions first under whose kernels what is wrong is made, and none that reaches for files."""

from types import SimpleNamespace

import pytest

from flashverify.interpreter import Sanitizer, faithful
from flashverify.interpreter.hooks import interpreting
from flashverify.repair.bench import Effect
from flashverify.repair.functions import executed
from flashverify.repair.suspicion import suspects
from tests.repair import plain, ran_kernels


@pytest.fixture
def _session():
    if not interpreting():
        pytest.skip("kernels are compiled in this process")
    with faithful(Sanitizer):
        yield


def names(bench):
    return [ran.name for _, ran in suspects(bench)]


def of_kernels(wrong):
    """A bench whose outputs are what the first kernel makes, and what both make."""
    seen = {}

    def execution():
        out = ran_kernels.run()
        return {"first": float(ran_kernels.MIDDLE[0][0]), "both": float(out[0])}

    right = execution()

    def effect():
        now = execution()
        seen.update(now)
        return Effect(changed=frozenset(name for name, value in now.items() if value != right[name]))

    return SimpleNamespace(execution=execution, effect=effect, wrong=frozenset(wrong))


@pytest.mark.usefixtures("_session")
@pytest.mark.parametrize(
    ("wrong", "likeliest", "cost"),
    [(["both"], "second", 0.0), (["first", "both"], "first", 0.0)],
)
def test_kernels_that_make_what_is_wrong_and_little_else_come_first(wrong, likeliest, cost):
    found = suspects(of_kernels(wrong))
    costs = {ran.name: value for value, ran in found}

    assert found[0][1].name == likeliest
    assert costs[likeliest] == pytest.approx(cost, abs=0.01)
    assert costs["launched"] > costs[likeliest] + 0.1
    assert list(costs.values()) == sorted(costs.values())


@pytest.mark.usefixtures("_session")
def test_what_runs_outside_of_kernels_and_returns_no_floats_comes_later(monkeypatch):
    def returning(run, kernels):
        found = executed(run, kernels)
        for each in found:
            each.returned = "int" if each.name == "run" else each.returned
        return found

    monkeypatch.setattr("flashverify.repair.suspicion.executed", returning)
    costs = {ran.name: cost for cost, ran in suspects(of_kernels(["both"]))}

    assert costs["run"] > costs["launched"] + 0.2


@pytest.mark.usefixtures("_session")
def test_functions_that_reach_for_files_or_only_refuse_are_none():
    found = names(of_kernels(["both"]))

    assert {"first", "second", "helper", "launched"} <= set(found)
    assert not {"folder", "checked"} & set(found)


@pytest.mark.parametrize("name", ["reading", "removing"])
def test_a_plain_function_that_reaches_for_files_is_none(name, tmp_path):
    path = tmp_path / "text"

    def execution():
        path.write_text("abc")
        return getattr(plain, name)(str(path)) + plain.plain(1)

    bench = SimpleNamespace(execution=execution, effect=lambda: None, wrong=frozenset())

    assert "plain" in names(bench)
    assert name not in names(bench)


def test_without_kernels_what_ran_first_comes_first():
    bench = SimpleNamespace(execution=lambda: plain.calling(1), effect=lambda: None, wrong=frozenset())

    assert names(bench)[-2:] == ["calling", "plain"]
