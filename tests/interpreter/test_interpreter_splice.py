"""A recording that takes in a replayed call knows where each operand comes from, or is not repeated."""

from types import SimpleNamespace

import numpy as np
import pytest

from flashverify.interpreter.recording import Recording
from flashverify.interpreter.steps import Constant, Slot, Step


def tensor():
    return SimpleNamespace(handle=SimpleNamespace(data=np.zeros((1, 4))))


def replayed(*args, **kwargs):
    """The recording of a call of two inputs whose one operation fills slot 2."""
    inner = Recording([tensor(), tensor()], plain=True, placed=False)
    inner.shapes.append((8,))
    inner.steps.append(Step("create_fadd", list(args), kwargs, [2], several=False))
    inner.elements = 32
    return inner


@pytest.mark.parametrize(
    ("inner", "opaque"),
    [
        (replayed(Slot(0), Constant(1)), False),
        (replayed(Slot(0), Slot(1)), True),
        (replayed(Slot(0), x=Slot(1)), True),
        (replayed(Slot(0), x=Slot(2)), False),
    ],
)
def test_a_call_with_an_operand_from_elsewhere_cannot_be_repeated(inner, opaque):
    known, unknown = tensor(), tensor()
    outer = Recording([tensor(), known], plain=True, placed=False)
    outer.splice(inner, [known.handle, unknown.handle], [])

    assert outer.opaque is opaque


def test_a_call_that_could_not_be_repeated_once_stays_so():
    outer = Recording([tensor()], plain=True, placed=False)
    outer.opaque = True
    outer.splice(replayed(Slot(0)), [outer.inputs[0].handle, tensor().handle], [])

    assert outer.opaque


def test_slots_of_the_inner_call_follow_those_of_the_outer_one():
    outer, made = Recording([tensor() for _ in range(3)], plain=True, placed=False), tensor().handle
    given = [outer.inputs[2].handle, outer.inputs[0].handle]
    outer.splice(replayed(Slot(0), Constant(7), x=Slot(1)), given, [(Slot(2), made)])

    (step,) = outer.steps
    assert (step.args, step.kwargs, step.outs) == ([Slot(2), Constant(7)], {"x": Slot(0)}, [3])
    assert (outer.shapes, outer.elements) == ([(4,), (4,), (4,), (8,)], 32)
    assert outer._known[id(made)] == Slot(3)
