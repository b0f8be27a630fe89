"""A function of kernels is exchanged for a block: in whatever calls it, and in nothing else."""

import ast
import inspect
import sys

import pytest

from flashverify.interpreter import Sanitizer, faithful
from flashverify.interpreter.exchanging import exchanged, function_of, rewritten
from flashverify.interpreter.loop_code import REWRITTEN
from flashverify.interpreter.modes import kernels_so_far, launches, line_by_line
from tests.interpreter.exchanged_kernels import alone, first, moved, second, twice_moved, value


@pytest.fixture(autouse=True)
def session():
    with faithful(Sanitizer) as opened:
        yield opened


def edited(function, old, new):
    """A function of kernels with another text."""
    text = inspect.getsource(function.fn)
    text = text[text.index("def ") :]
    assert text.count(old) == 1
    return function_of(ast.parse(text.replace(old, new)), function.fn, lambda tree: tree)


def values():
    return [value(kernel)[0] for kernel in (first, second, alone)]


RIGHT = [5.0, 6.0, 12.0]


@pytest.mark.parametrize(
    ("function", "old", "new", "expected"),
    [
        (moved, "x + 1.0", "x + 10.0", [14.0, 24.0, 12.0]),
        (twice_moved, "moved(moved(x))", "moved(x) * 2.0", [5.0, 10.0, 12.0]),
        (first, "moved(tl.load(x + at))", "tl.load(x + at)", [4.0, 6.0, 12.0]),
        (alone, "3.0", "5.0", [5.0, 6.0, 20.0]),
    ],
    ids=["called by two", "called by one, and calling", "a kernel that calls", "a kernel alone"],
)
@pytest.mark.parametrize("before", [True, False], ids=["recorded before", "not met before"])
def test_an_exchanged_function_runs_inside_the_block_alone(function, old, new, expected, before):
    if before:
        assert values() == RIGHT
        assert values() == RIGHT
    made = edited(function, old, new)

    with exchanged(function.fn, made):
        assert values() == expected
        assert values() == expected
    assert values() == RIGHT
    with exchanged(function.fn, made):
        assert values() == expected
    assert values() == RIGHT


def test_it_is_gone_behind_a_block_that_raises():
    values()
    with pytest.raises(ZeroDivisionError), exchanged(moved.fn, edited(moved, "x + 1.0", "x + 10.0")):
        assert 1 / (values() == RIGHT)
    assert values() == RIGHT


def test_blocks_may_stand_in_each_other():
    values()
    with exchanged(moved.fn, edited(moved, "x + 1.0", "x + 10.0")):
        with exchanged(moved.fn, edited(moved, "x + 1.0", "x + 100.0")):
            assert values() == [104.0, 204.0, 12.0]
        with exchanged(alone.fn, edited(alone, "3.0", "5.0")):
            assert values() == [14.0, 24.0, 20.0]
        assert values() == [14.0, 24.0, 12.0]
    assert values() == RIGHT


def test_what_runs_is_what_ran_before():
    values()
    before = dict(REWRITTEN)

    with exchanged(moved.fn, edited(moved, "x + 1.0", "x + 10.0")):
        values()

    assert before == REWRITTEN


def test_known_launches_of_kernels_that_do_not_call_it_are_repeated():
    known = launches()
    for kernel in (first, second, alone):
        assert value(kernel, kept=known)[1]

    assert [value(kernel, known=known)[1] for kernel in (first, second, alone)] == [False, False, False]
    with exchanged(moved.fn, edited(moved, "x + 1.0", "x + 10.0")):
        assert [value(kernel, known=known) for kernel in (first, second, alone)] == [
            (14.0, True),
            (24.0, True),
            (12.0, False),
        ]
    with exchanged(twice_moved.fn, edited(twice_moved, "moved(moved(x))", "moved(x)")):
        assert [value(kernel, known=known)[1] for kernel in (first, second, alone)] == [False, True, False]
    assert [value(kernel, known=known)[1] for kernel in (first, second, alone)] == [False, False, False]


def test_launches_of_an_edited_kernel_are_not_kept_for_the_unedited_one():
    known = launches()
    with exchanged(alone.fn, edited(alone, "3.0", "5.0")):
        assert value(alone, kept=known) == (20.0, True)

    assert value(alone, known=known) == (12.0, True)


def test_a_default_of_a_caller_is_kept():
    values()
    with exchanged(moved.fn, edited(moved, "x + 1.0", "x + 10.0")):
        for original in (first, second, twice_moved):
            assert REWRITTEN[original.fn].__defaults__ == original.fn.__defaults__
            assert REWRITTEN[original.fn].__annotations__.keys() == original.fn.__annotations__.keys()


def test_the_functions_of_kernels_that_ran_are_known_by_their_code():
    values()

    found = rewritten()

    assert {each.fn for each in (first, second, alone, moved, twice_moved)} <= set(found.values())
    assert kernels_so_far() == found


def lines_of(run):
    """The functions of this package's kernels whose lines Python runs."""
    seen = []

    def entered(frame, event, _):
        if event == "call" and frame.f_code.co_filename.endswith("exchanged_kernels.py"):
            seen.append(frame.f_code.co_name)

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        run()
    finally:
        sys.settrace(before)
    return [name for name in seen if name not in ("value", "<lambda>", "<genexpr>")]


def test_line_by_line_every_function_runs_in_python():
    values()

    with line_by_line():
        assert lines_of(lambda: value(second)) == ["second", "twice_moved", "moved", "moved"]
    assert lines_of(lambda: value(second)).count("moved") < 2
    assert values() == RIGHT
