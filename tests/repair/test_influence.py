"""What a statement reaches: the outputs that change where what it makes, returns or passes is another value."""

import math

import pytest

from flashverify.interpreter import Sanitizer, faithful
from flashverify.interpreter.hooks import interpreting
from flashverify.interpreter.modes import kernels_so_far, line_by_line
from flashverify.repair.bench import Effect
from flashverify.repair.functions import executed
from flashverify.repair.influence import influence
from flashverify.repair.pool import Pool, reached
from tests.repair import ran_kernels


@pytest.fixture(scope="module")
def ran():
    if not interpreting():
        pytest.skip("kernels are compiled in this process")
    with faithful(Sanitizer):
        with line_by_line():
            found = executed(ran_kernels.run, kernels_so_far)
        yield {each.name: each for each in found}


def outputs():
    out = ran_kernels.run()
    return {"first": ran_kernels.MIDDLE[0].clone(), "both": out}


def effects(wrong):
    """The effect of a run as it is now, where one output is wrong."""
    before = outputs()

    def effect():
        changed = frozenset(name for name, value in outputs().items() if not value.equal(before[name]))
        aim = 1.0 / len(changed) if wrong in changed else 0.0
        return Effect(touched=float(wrong in changed), aimed=aim, changed=changed)

    return effect


@pytest.mark.parametrize(
    ("name", "line", "changed"),
    [
        ("second", "values = helper(tl.load(x + at, mask=at < rows, other=0.0), 3.0)", {"both"}),
        ("second", "tl.store(out + at, values, mask=at < rows)", {"both"}),
        ("first", "values = helper(tl.load(x + at, mask=inside, other=0.0), 2.0)", {"first", "both"}),
        ("helper", "return moved + 0.0", {"first", "both"}),
        ("launched", "return out.to(dtype) * sizes.scale if causal else out", {"both"}),
    ],
)
def test_a_statement_reaches_what_is_made_of_its_value(ran, name, line, changed):
    source = ran[name].source
    found = {
        source.text.split("\n")[node.lineno - 1].strip(): effect
        for node, effect in influence(ran[name], effects("both"))
    }

    assert found[line].changed == changed


def test_statements_that_make_no_floats_are_not_asked(ran):
    source = ran["first"].source
    lines = {source.text.split("\n")[node.lineno - 1].strip() for node, _ in influence(ran["first"], effects("both"))}

    assert not {"at = tl.arange(0, N)", "inside = at < rows"} & lines


def test_the_function_is_as_it_was_afterwards(ran):
    before = outputs()

    assert [effect.changed for _, effect in influence(ran["second"], effects("both"))] == [{"both"}] * 2
    assert all(value.equal(before[name]) for name, value in outputs().items())


@pytest.mark.parametrize(
    ("effect", "passed", "least", "most"),
    [
        (Effect(touched=1.0, aimed=1.0, changed=frozenset("o")), False, 0.7, 0.9),
        (Effect(touched=1.0, aimed=0.1, changed=frozenset("o")), False, 0.0, 0.2),
        (Effect(touched=0.0, aimed=-0.3, changed=frozenset("o")), False, -1.0, -1.0),
        (Effect(touched=0.0, aimed=-0.3, changed=frozenset("o")), True, 0.0, 0.0),  # stored elsewhere, or not at all
        (None, False, -0.2, 0.0),
    ],
)
def test_what_reaches_all_that_is_wrong_and_little_else_is_promising(effect, passed, least, most):
    assert least <= reached(effect, passed=passed) <= most


@pytest.mark.parametrize(("wrong", "likeliest"), [("first", "first"), ("both", "second")])
def test_edits_of_what_reaches_the_mistake_come_first(ran, wrong, likeliest):
    """Without what statements reach the functions are alike, and come as they ran."""
    pool = Pool(ran_kernels.run, [(0.0, ran[name]) for name in ("first", "second")], effects(wrong))
    units = {unit.ran.name: unit for unit in pool.units if unit.tier == 0}
    for unit in units.values():
        pool._make_ready(unit)
    costs = {name: unit.cheapest()[0] for name, unit in units.items()}

    assert min(costs, key=costs.get) == likeliest
    assert not math.isclose(costs["first"], costs["second"])


def test_insertions_into_what_reaches_the_mistake_are_made_ready_sooner(ran):
    pool = Pool(ran_kernels.run, [(0.0, ran["second"])], effects("both"))
    first, later = (unit for unit in pool.units if unit.tier < 2)
    before = later.cheapest()[0]
    pool._make_ready(first)

    assert later.cheapest()[0] < before - 0.5


def test_a_function_of_which_no_copy_can_be_made_is_asked_nothing(ran, monkeypatch):
    def failing(*_):
        raise ValueError("no copy")

    monkeypatch.setattr("flashverify.repair.influence.probed", failing)

    assert list(influence(ran["second"], effects("both"))) == []
