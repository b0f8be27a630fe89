"""The self-test of the interpreter passes, and sees the semantics that stock Triton has."""

import numpy as np
import pytest

from flashverify.errors import SelfCheckError
from flashverify.interpreter import Layer, faithful, self_test, session
from flashverify.interpreter.hooks import InterpreterBuilder, handle


def stock_max(x, axis, keep):
    return handle(np.max(x.data, axis=axis, keepdims=keep).reshape(-1), x.dtype)


def test_the_self_test_passes():
    with faithful() as opened:
        self_test()

        assert (opened.launches, dict(opened.fallbacks)) == (0, {})


@pytest.mark.parametrize(
    ("method", "wrong", "named"),
    [
        ("cast_impl", lambda self, x, ty: InterpreterBuilder.cast_impl(self, x, ty), "bf16"),
        ("create_reduction", lambda self, x, kind, axis, keep: stock_max(x, axis, keep), "top"),
        ("create_dot", lambda self, a, b, d, *_: handle(self.accumulate(a.data, b.data, d.data, ""), d.dtype), "tf32"),
    ],
)
def test_the_self_test_sees_stock_semantics(method, wrong, named):
    sabotage = type("Sabotage", (Layer,), {method: wrong})
    with session(sabotage), pytest.raises(SelfCheckError, match=named):
        self_test()
