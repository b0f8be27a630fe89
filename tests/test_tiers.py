"""Which tests `make test` and `make test-fast` leave out."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import conftest
from tests.fast_tier import fast_one_in, thorough_in


class Item:
    def __init__(self, *marks):
        self.marks = marks

    def get_closest_marker(self, name):
        return name if name in self.marks else None


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({}, 2),
        ({"markexpr": "not slow"}, 2),
        ({"markexpr": "thorough"}, 3),
        ({"keyword": "causal"}, 3),
        ({"args": ["tests/test_cli.py::test_json"]}, 3),
        ({"args": ["tests/mutants"]}, 2),
    ],
    ids=str,
)
def test_thorough_tests_are_left_out_unless_they_are_asked_for(asked, count):
    items, left = [Item(), Item("slow"), Item("slow", "thorough")], []
    config = SimpleNamespace(
        option=SimpleNamespace(markexpr=asked.get("markexpr", ""), keyword=asked.get("keyword", "")),
        args=asked.get("args", ["tests"]),
        getoption=lambda _: None,
        hook=SimpleNamespace(pytest_deselected=lambda items: left.extend(items)),
    )
    conftest.pytest_collection_modifyitems(config, items)

    assert (len(items), len(left)) == (count, 3 - count)


def test_of_parameters_one_in_so_many_is_fast_and_one_in_so_many_is_kept():
    found = fast_one_in(4, [*range(3), pytest.param(3, 4, id="both", marks=pytest.mark.gpu), *range(5, 9)], kept=2)

    marks = [{mark.name for mark in param.marks} for param in found]
    assert [("slow" in x, "thorough" in x) for x in marks] == [
        (False, False),
        (True, True),
        (True, False),
        (True, True),
    ] * 2
    assert (found[3].values, found[3].id, marks[3]) == ((3, 4), "both", {"gpu", "slow", "thorough"})


def test_of_a_sweep_the_first_and_every_nth_are_no_thorough_ones():
    class Collected:
        def __init__(self, name, config):
            self.path, self.originalname, self.config, self.marks = Path("test_it.py"), name, config, []

        def get_closest_marker(self, name):
            return SimpleNamespace(args=(3,)) if self.originalname == "swept" else None

        def add_marker(self, mark):
            self.marks.append(mark.name)

    config = SimpleNamespace(stash=pytest.Stash())
    items = [Collected(name, config) for name in ("swept", "alone", "swept", "swept", "alone", "swept")]
    for item in items:
        conftest.pytest_itemcollected(item)

    assert [item.marks for item in items] == [[], [], ["thorough"], ["thorough"], [], []]


def test_names_that_are_repeated_are_thorough_and_a_name_of_nothing_is_refused():
    found = thorough_in(("second",), {"first": 1, "second": 2})

    assert [(*each.values, {mark.name for mark in each.marks}) for each in found] == [
        ("first", set()),
        ("second", {"thorough"}),
    ]
    with pytest.raises(ValueError, match=r"no such parameters: \['third'\]"):
        thorough_in(("third",), ("first", "second"))
