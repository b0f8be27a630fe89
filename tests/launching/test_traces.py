"""Functions that torch compiles, counted and refused."""

from types import SimpleNamespace

import pytest
import torch

from flashverify.launching.compilations import NotCompiled
from flashverify.launching.traces import Traces, traces

pytestmark = pytest.mark.slow


@pytest.fixture
def doubled():
    torch.compiler.reset()
    yield torch.compile(lambda x: x.sin() * 2, dynamic=True, backend="eager")
    torch.compiler.reset()


def test_a_compilation_is_counted_and_a_call_that_needs_none_is_not(doubled):
    traces.listen()
    before, seconds = traces.count, traces.seconds
    doubled(torch.ones(3, 4))
    doubled(torch.ones(5, 7))
    doubled(torch.ones(5, 7, 2))

    assert traces.count - before == 2
    assert traces.seconds > seconds
    assert not traces.running


def test_a_call_that_would_compile_raises_where_it_may_not_and_others_run(doubled):
    doubled(torch.ones(3, 4))
    with traces.only_where(lambda: False):
        before = traces.count
        with pytest.raises(NotCompiled):
            doubled(torch.ones(3, 4, 5))
        assert torch.equal(doubled(torch.zeros(6, 2)), torch.zeros(6, 2))
        assert traces.count == before

    assert doubled(torch.ones(3, 4, 5)).shape == (3, 4, 5)
    assert traces.count == before + 1


def test_what_was_refused_does_not_count_towards_the_limits_of_torch(doubled):
    """Beyond its limit of recompilations torch runs a function uncompiled."""
    doubled(torch.ones(3, 4))
    with torch._dynamo.config.patch(accumulated_recompile_limit=4), traces.only_where(lambda: False):
        for _ in range(6):
            with pytest.raises(NotCompiled):
                doubled(torch.ones(3, 4, 5))


def test_a_function_that_was_never_compiled_is_refused_as_often_as_it_is_called(doubled):
    with torch._dynamo.config.patch(accumulated_recompile_limit=4):
        with traces.only_where(lambda: False):
            for _ in range(6):
                with pytest.raises(NotCompiled):
                    doubled(torch.ones(3, 4))

        before = traces.count
        doubled(torch.ones(3, 4))
        assert traces.count == before + 1


def test_it_is_asked_once_within_a_block_in_another(doubled):
    asked = []
    doubled(torch.ones(3))
    with traces.only_where(lambda: False), traces.only_where(lambda: not asked.append(None)):
        doubled(torch.ones(4, 4))

    assert len(asked) == 1


def test_it_is_asked_before_each_compilation(doubled):
    asked = []
    with traces.only_where(lambda: not asked.append(None)):
        doubled(torch.ones(3))
        doubled(torch.ones(4))
        doubled(torch.ones(4, 4))

    assert len(asked) == 2


def test_a_backward_that_is_compiled_later_is_let_through():
    found = Traces(allowed=lambda: False)

    found._start(SimpleNamespace(callback_trigger=SimpleNamespace(name="LAZY_BACKWARD")))
    assert (found.count, found.running) == (1, True)
    found._end()
    assert not found.running
