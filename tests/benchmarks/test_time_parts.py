"""The split of processor time: each second belongs to the innermost part, whoever asks."""

import sys
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from time_parts import Clock

    now = [0.0]
    monkeypatch.setattr(time, "process_time", lambda: now[0])
    made = Clock()
    made.spend = lambda seconds: now.__setitem__(0, now[0] + seconds)
    return made


def test_a_second_belongs_to_the_innermost_part(clock):
    def launch():
        clock.spend(4)

    def execute():
        clock.spend(1)
        for _ in range(2):
            launches()
        clock.spend(2)

    launches, passes = clock.within("kernels", launch), clock.within("host", execute)
    clock.spend(100)  # outside every part
    passes()

    assert clock.seconds == {"host": 3, "kernels": 8}
    assert clock.calls == {"host": 1, "kernels": 2}


def test_what_raises_is_counted_and_left(clock):
    def fail():
        clock.spend(3)
        raise ValueError("unfit")

    def judge():
        with pytest.raises(ValueError, match="unfit"):
            clock.within("truth", fail)()
        clock.spend(5)

    clock.within("checks", judge)()

    assert clock.seconds == {"truth": 3, "checks": 5}


def test_a_replaced_function_is_replaced_wherever_the_harness_has_it(clock, monkeypatch):
    from time_parts import _replace

    from flashverify.checks import engine
    from flashverify.checks.passes import execution

    original = execution.execute
    monkeypatch.setattr(engine, "execute", original)
    try:
        _replace(original, len)
        held = [name for name, module in sys.modules.items() if getattr(module, "execute", None) is original]
        assert engine.execute is execution.execute is len
    finally:
        for name, module in list(sys.modules.items()):
            if name.startswith("flashverify") and getattr(module, "execute", None) is len:
                module.execute = original

    assert not [name for name in held if name.startswith("flashverify")]


def test_every_launch_runs_where_that_is_asked(clock):
    from time_parts import every_launch

    from flashverify.checks.engine import _Judgement

    before = _Judgement._launches
    with every_launch():
        assert _Judgement._launches(None) is None
    assert _Judgement._launches is before
