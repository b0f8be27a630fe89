"""Where non-finite values are made, and what a launch moves and multiplies."""

import gc
import math

import pytest
import torch
import triton
import triton.language as tl

from flashverify.errors import UsageError
from flashverify.interpreter import Sanitizer, Traffic, count, session, trace, watch
from flashverify.interpreter.counters import Counters
from flashverify.interpreter.lockstep import Lockstep
from flashverify.interpreter.memory import Tagged
from flashverify.interpreter.nonfinite import NonFinite
from flashverify.interpreter.numerics import Numerics
from flashverify.interpreter.products import Products

BOTH = pytest.mark.parametrize("lockstep", [True, False], ids=["lockstep", "alone"])


@triton.jit
def divide(x_ptr, y_ptr, out_ptr, HIDE: tl.constexpr):
    i = tl.program_id(0) * 4 + tl.arange(0, 4)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    if HIDE:
        x = tl.where(y == 0, float("-inf"), x)
        y = tl.where(y == 0, 1.0, y)
    z = x / y
    tl.store(out_ptr + i, z + 1.0)


@triton.jit
def multiply(a_ptr, b_ptr, out_ptr):
    r = tl.arange(0, 16)
    at = r[:, None] * 16 + r[None, :]
    c = tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at))
    tl.store(out_ptr + tl.program_id(0) * 256 + at, c)


@triton.jit
def narrow(x_ptr, out_ptr):
    i = tl.arange(0, 4)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, x.to(tl.float16))
    tl.store(out_ptr + i, tl.sum(x, 0).to(tl.float16))


@triton.jit
def part_ways(x_ptr, out_ptr):
    p = tl.program_id(0)
    x = tl.load(x_ptr + p)
    y = x / 0.0
    if p == 1:
        y = 0.0
    tl.store(out_ptr + p, y)


def traced(lockstep, kernel, grid, *args, **kwargs):
    with session(lockstep=lockstep), trace() as seen:
        kernel[grid](*args, **kwargs)
    return seen


@BOTH
def test_the_first_event_names_line_program_lane_and_operands(lockstep):
    x, y, out = torch.arange(12.0), torch.ones(12), torch.empty(12)
    y[6] = 0.0
    x[9] = 0.0
    y[9] = 0.0
    seen = traced(lockstep, divide, (3,), x, y, out, HIDE=False)

    first = seen.first
    assert (first.kind, first.kernel) in {("overflow", "divide"), ("invalid", "divide")}
    events = {event.kind: event for event in seen.events.values()}
    assert set(events) == {"overflow", "invalid"}
    over = events["overflow"]
    assert (over.program, over.lane, over.operands, over.result) == ((1, 0, 0), (2,), (6.0, 0.0), math.inf)
    assert (over.place.file, over.place.line) == (__file__, divide.fn.__code__.co_firstlineno + 8)
    assert (events["invalid"].program, events["invalid"].lane) == ((2, 0, 0), (1,))
    assert {key[2]: n for key, n in seen.counts.items()} == {"overflow": 1, "invalid": 1}


@BOTH
def test_infinities_that_are_meant_are_no_events(lockstep):
    y = torch.ones(12)
    y[6] = 0.0
    seen = traced(lockstep, divide, (3,), torch.ones(12), y, torch.empty(12), HIDE=True)

    assert seen.first is None
    assert not seen.counts


@BOTH
def test_nan_in_memory_is_named_where_it_is_loaded(lockstep):
    x = torch.ones(12)
    x[5] = math.nan
    seen = traced(lockstep, divide, (3,), x, torch.ones(12), torch.empty(12), HIDE=False)

    (event,) = seen.events.values()
    assert (event.kind, event.operation, event.program, event.lane) == ("loaded", "load", (1, 0, 0), (1,))


@BOTH
def test_a_product_that_overflows(lockstep):
    a, b = torch.ones(16, 16), torch.ones(16, 16)
    a[3] = 1e38
    b[:, 5] = 1e2
    event = traced(lockstep, multiply, (2,), a, b, torch.empty(2, 16, 16)).first

    assert (event.kind, event.operation, event.lane) == ("overflow", "dot", (3, 0))
    a[3], a[7] = 1.0, 1e38
    b[:, 0] = 1e37
    event = traced(lockstep, multiply, (2,), a, b, torch.empty(2, 16, 16)).first
    assert event.lane == (7, 0)
    assert event.operands == pytest.approx((1e38, 1e37, 0.0))


@BOTH
def test_conversions_and_sums(lockstep):
    x = torch.tensor([1e5, 3e38, 3e38, 1e-9])
    seen = traced(lockstep, narrow, (2,), x, torch.empty(4, dtype=torch.float16))

    assert {e.kind for e in seen.events.values()} == {"overflow"}
    assert [e.operation for e in seen.events.values()] in (["fp_trunc", "sum"], ["fp_to_fp", "sum"])
    assert next(n for key, n in seen.counts.items() if key[2] == "underflow") > 0


def test_attempts_that_were_taken_back_do_not_count():
    seen = traced(True, part_ways, (4,), torch.ones(4), torch.empty(4))

    assert sum(n for key, n in seen.counts.items() if key[2] == "overflow") == 4


@BOTH
def test_counters(lockstep):
    with session(lockstep=lockstep), count() as counted:
        multiply[(2,)](torch.ones(16, 16), torch.ones(16, 16), torch.empty(2, 16, 16))
        part_ways[(4,)](torch.ones(4), torch.empty(4))

    product, parted = counted
    assert (product.kernel, product.grid, product.multiply_adds) == ("multiply", (2, 1, 1), 2 * 16**3)
    assert product.traffic["a_ptr"] == Traffic(loads=512, loaded_bytes=2048)
    assert product.traffic["out_ptr"] == Traffic(stores=512, stored_bytes=2048)
    assert parted.traffic == {"x_ptr": Traffic(loads=4, loaded_bytes=16), "out_ptr": Traffic(stores=4, stored_bytes=16)}


def test_no_two_mixins_share_a_private_name():
    owners = {}
    for mixin in (Lockstep, Sanitizer, NonFinite, Counters, Tagged, Products, Numerics):
        for name in {*vars(mixin), *vars(mixin).get("__annotations__", {})}:
            if not name.startswith(("create_", "on_", "get_", "__")):
                owners.setdefault(name, set()).add(mixin.__name__)

    known = {"cast_impl", "binary_op", "ternary_op", "unary_op", "lockstep"}
    assert {name: kinds for name, kinds in owners.items() if len(kinds) > 1 and name not in known} == {}


@BOTH
def test_trace_and_counters_work_above_the_sanitizer(lockstep):
    x, y = torch.ones(12), torch.zeros(12)
    with session(Sanitizer, lockstep=lockstep), watch() as seen, trace() as events, count() as counted:
        divide[(4,)](x, y, torch.empty(16), HIDE=False)

    assert {r.argument for r in seen.reports.values()} == {"x_ptr", "y_ptr"}
    assert events.first.operation == "fdiv"
    assert counted[0].traffic["x_ptr"].loads == 16


def test_both_need_a_session_and_leave_it_as_it_was():
    for needed in (trace, count):
        with pytest.raises(UsageError, match="open session"), needed():
            pass
    with session() as opened:
        kinds = (opened.plain_class, opened.lockstep_class, type(opened.builder))
        with trace(), count():
            assert type(opened.builder) is not kinds[2]
        assert (opened.plain_class, opened.lockstep_class, type(opened.builder)) == kinds


def test_what_a_block_that_counts_recorded_ends_with_it():
    def recorded():
        return {kind for kind in Counters.__subclasses__() if kind.tapes}

    before = recorded()  # other sessions of this process may still have theirs
    with session():
        for _ in range(4):
            with count() as counted:
                multiply[(2,)](torch.ones(16, 16), torch.ones(16, 16), torch.empty(2, 16, 16))
            assert counted
        gc.collect()
        assert len(recorded() - before) <= 1  # that which was last recorded with
