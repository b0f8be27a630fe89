"""Mixins see a replayed call as they see the first: a sanitizer, a trace, and operations that one changes."""

import torch
import triton
import triton.language as tl

from flashverify.interpreter import Layer, Sanitizer, session, trace, watch
from flashverify.interpreter.hooks import handle
from tests.interpreter.test_interpreter_replay import products, scaled, tapes, tile


@triton.jit
def careless(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tile(x_ptr, i, N)
    tl.store(out_ptr + i, tl.sum(x, 1))
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < 2))


def test_the_sanitizer_says_the_same_of_a_replay():
    found = []
    for replaying in (False, True):
        with session(Sanitizer) as opened:
            if not replaying:
                opened.lockstep_class.tapes = None
            for _ in range(3):
                with watch(fill="low") as seen:
                    careless[(2,)](torch.ones(60)[:50], torch.zeros(16), N=16)
                found.append((list(seen.reports.values()), list(seen.lanes.values()), seen.dropped))
    kinds = {report.kind for report in found[0][0]}

    assert found == found[:1] * 6
    assert kinds == {"out-of-bounds", "double-write"}
    assert found[0][1]


def test_a_line_of_a_device_function_is_named_with_its_caller():
    line = tile.fn.__code__.co_firstlineno + 3
    caller = careless.fn.__code__.co_firstlineno + 3
    with session(Sanitizer):
        for _ in range(2):
            with watch() as seen:
                careless[(1,)](torch.ones(50), torch.zeros(16), N=16)
            place = next(iter(seen.reports.values())).place
            assert (place.line, place.caller) == (line, f"test_interpreter_replay_mixins.py:{caller}")


@triton.jit
def overflowing(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, scaled(tl.load(x_ptr + i), 3e38))


def test_a_trace_sees_every_operation():
    x, out = torch.full((4,), 2.0), torch.zeros(4)
    with session() as opened:
        for _ in range(2):
            overflowing[(1,)](x, out, N=4)
        with trace() as found:
            overflowing[(1,)](x, out, N=4)
            assert tapes(opened) is None

    assert found.first is not None
    assert found.first.place.line == scaled.fn.__code__.co_firstlineno + 2


class Doubling(Layer):
    """Sums and splats are twice what they are."""

    def create_fadd(self, lhs, rhs):
        out = super().create_fadd(lhs, rhs)
        return handle(out.data * 2, out.dtype)

    def create_addptr(self, ptr, offset):
        self.moves += 1
        return super().create_addptr(ptr, offset)


def test_operations_that_a_mixin_changes_are_its_own_in_a_replay():
    x, out = torch.tensor([2.0, 3.0]), torch.zeros(4, 2)
    moves = []
    with session(Doubling) as opened:
        for _ in range(3):
            opened.builder.moves = 0
            products[(1,)](x, x, out.zero_(), N=2)
            moves.append(opened.builder.moves)
            assert out[1].tolist() == [10.0, 20.0]

    assert moves == [moves[0]] * 3
    assert moves[0] > 0
