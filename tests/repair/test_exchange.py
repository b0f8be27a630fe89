"""An edit of a plain function is in effect inside a block, and gone afterwards."""

import ast

import pytest
import torch

from flashverify.repair.exchange import Edit, code_of, edited, in_place
from flashverify.repair.functions import executed
from tests.repair import plain


def ran(run, name):
    return next(each for each in executed(run, dict) if each.name == name)


def edit_of(function, old, new):
    """The edit of the first `old` behind the head of a function."""
    text = function.source.text
    start = text.index(old, function.source.span(function.node.body[0])[0])
    return Edit(start, start + len(old), new)


def _forwards(x):
    return int(plain.Added.apply(torch.tensor(float(x))))


def _backwards(x):
    leaf = torch.tensor(0.0, requires_grad=True)
    plain.Added.apply(leaf).backward(torch.tensor(float(x)))
    return int(leaf.grad)


CALLS = {
    "plain": (plain.plain, "x + 1"),
    "method": (plain.Holder().method, "x + 1"),
    "of_class": (plain.Holder.of_class, "x + 1"),
    "inner": (plain.closed, "x + by"),
    "forward": (_forwards, "x + 1"),
    "backward": (_backwards, "grad + 1"),
    "annotated": (plain.annotated, "x + 1"),
    "calling": (lambda x: plain.calling(x - 1), "plain(first)"),
}
INSTEAD = {"inner": "x * by + 100", "backward": "grad + 100", "calling": "first + 99"}


@pytest.mark.parametrize("name", CALLS)
def test_an_edit_is_in_effect_inside_the_block_alone(name):
    call, old = CALLS[name]
    assert call(3) == 4
    function = ran(lambda: call(3), name)
    made = edited(function, edit_of(function, old, INSTEAD.get(name, "x + 100")))

    assert call(3) == 4
    with in_place(function, made):
        assert call(3) == 103 - (name == "calling") * 1
    assert call(3) == 4
    with pytest.raises(ZeroDivisionError), in_place(function, made):
        assert 1 / (call(3) == 4)
    assert call(3) == 4


def test_every_function_of_a_code_is_exchanged():
    function = ran(lambda: (plain.closed(1), plain.other(1)), "inner")

    with in_place(function, edited(function, edit_of(function, "x + by", "x - by"))):
        assert (plain.closed(1), plain.other(1)) == (0, -9)
    assert (plain.closed(1), plain.other(1)) == (2, 11)


def test_blocks_may_stand_in_each_other():
    function = ran(lambda: plain.plain(1), "plain")
    made = [edited(function, edit_of(function, "x + 1", f"x + {n}")) for n in (5, 7)]

    with in_place(function, made[0]):
        with in_place(function, made[1]):
            assert plain.plain(0) == 7
        assert plain.plain(0) == 5
    assert plain.plain(0) == 1


def test_a_changed_tree_counts_the_lines_of_the_file():
    seen = []
    function = ran(lambda: plain.closed(1), "inner")

    def change(tree, shift):
        seen.extend((node.lineno, node.col_offset + shift) for node in ast.walk(tree) if isinstance(node, ast.Return))
        return tree

    code_of(function, change)

    returned = function.node.body[-1]
    assert (returned.lineno, returned.col_offset) in seen


def test_an_edit_that_is_no_python_is_refused():
    function = ran(lambda: plain.plain(1), "plain")

    with pytest.raises(SyntaxError):
        edited(function, edit_of(function, "x + 1", "x +"))


def test_an_edit_that_takes_a_free_variable_away_is_refused():
    """Code with other free variables does not fit the functions."""
    function = ran(lambda: plain.closed(1), "inner")

    with pytest.raises(SyntaxError):
        edited(function, edit_of(function, "x + by", "x"))
