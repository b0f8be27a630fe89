"""A launch that would load what an earlier one loaded is not run again, and leaves the same bits; any other one runs."""

import dataclasses
import gc
from typing import NamedTuple

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from flashverify.interpreter import Sanitizer, count, faithful, trace, watch
from flashverify.interpreter import repeats as rules
from flashverify.interpreter.layer import Launch, leaves
from flashverify.interpreter.memory import Argument
from flashverify.interpreter.repeats import Launches

N = 8
FACTOR = tl.constexpr(2.0)


@triton.jit
def doubled(x, out, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(out + at, 2.0 * tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def scaled(x, out, n, by, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(out + at, by * tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def by_global(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0) * FACTOR, mask=at < n)


@triton.jit
def summed(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.atomic_add(out + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def swapped(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.atomic_cas(out, 0.0, 1.0)
    tl.store(x + TILE + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def telling(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    values = tl.load(x + at, mask=at < n, other=0.0)
    tl.device_print("values", values)
    tl.store(out + at, values, mask=at < n)


@triton.jit
def telling_once(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.static_print("a tile of", TILE)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def asserting(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    values = tl.load(x + at, mask=at < n, other=0.0)
    tl.device_assert(values < 100.0, "too large")
    tl.store(out + at, values, mask=at < n)


@triton.jit
def refusing(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)
    tl.static_assert(n == 0, "not of this length")


@triton.jit
def by_address(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    odd = (x.to(tl.int64) // 16 % 2).to(tl.float32)
    tl.store(out + at, odd + tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def by_cast(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    bits = tl.load(x.to(tl.pointer_type(tl.int32)) + at, mask=at < n, other=0)
    tl.store(out + at, bits.to(tl.float32, bitcast=True), mask=at < n)


@triton.jit
def undefined(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def unmasked(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, 2 * TILE)
    tl.store(out + at, tl.load(x + at), mask=at < n)


@triton.jit
def clashing(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def blocked(x, out, n, TILE: tl.constexpr):
    block = tl.make_block_ptr(x, (n,), (1,), (0,), (TILE,), (0,))
    values = tl.load(block, boundary_check=(0,), padding_option="zero")
    at = tl.arange(0, TILE)
    tl.store(out + at, values, mask=at < n)


@triton.jit
def described(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tile = tl.make_tensor_descriptor(x, (1, n), (TILE, 1), (1, TILE))
    tl.store(out + at, tl.reshape(tile.load([0, 0]), (TILE,)), mask=at < n)


@triton.jit
def parted(x, out, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    first = tl.load(x + tl.program_id(0) * TILE)
    tl.store(out + at, 0.0 * at, mask=at < n)
    if first > 0.0:
        tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@pytest.fixture
def session():
    with faithful(Sanitizer) as opened:
        yield opened


def inputs():
    x = torch.full((2 * N,), 7.0)
    x[: N - 1] = torch.arange(1.0, N)
    return x


def poison(tensor):
    return 0x7FA5A5A5 if tensor.dtype == torch.float32 else None


def launch(session, kernel, x, out, *more, known, grid=1, **watched):
    """Run a kernel: whether it did run, and what was reported."""
    before = session.attempts + session.fallbacks.total()
    at = {x.untyped_storage().data_ptr()}
    with watch(**({"inputs": at, "poison": poison, "kept": known, "known": known} | watched)) as seen:
        kernel[(grid,)](x, out, *(more or (N - 1,)), TILE=N // grid)
    return session.attempts + session.fallbacks.total() > before, seen


def twice(session, kernel, change=lambda x: None, **options):
    """Whether a kernel runs again after a change of its input."""
    known, x = Launches(), inputs()
    out = torch.full((4 * N,), float("nan"))
    assert launch(session, kernel, x, out, known=known, **options)[0]
    change(x)
    return launch(session, kernel, x, out, known=known, **options)[0]


# --- launches that are spared -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [doubled, blocked, described])
@pytest.mark.parametrize("padding", [0.0, float("nan"), float("inf")])
def test_a_launch_that_loads_the_same_leaves_the_same_bits_unrun(session, kernel, padding):
    known, x = Launches(), inputs()
    first, again, run = (torch.full((2 * N,), -1.0) for _ in range(3))

    assert launch(session, kernel, x, first, known=known)[0]
    other = x.clone()
    other[N - 1 :] = padding
    assert not launch(session, kernel, other, again, known=known)[0]
    assert launch(session, kernel, other, run, known=None)[0]

    assert torch.equal(again.view(torch.int32), run.view(torch.int32))
    assert torch.equal(again.view(torch.int32), first.view(torch.int32))
    assert bool((again[N - 1 :] == -1).all())


def test_programs_that_parted_are_spared_with_what_they_stored_last(session):
    known, x = Launches(), inputs()
    x[N // 2] = -1.0
    first, again = torch.full((N,), 5.0), torch.full((N,), 5.0)

    assert launch(session, parted, x, first, known=known, grid=2)[0]
    x[N:] = 3.0
    assert not launch(session, parted, x, again, known=known, grid=2)[0]

    assert torch.equal(first, again)
    assert again.tolist() == [1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 5.0]


@pytest.mark.parametrize("empty", ["x", "out"])
def test_an_empty_tensor_is_loaded_and_stored_alike(session, empty):
    known, x, out = Launches(), inputs(), torch.zeros(N)
    x, out = (x[:0], out) if empty == "x" else (x, out[:0])

    assert launch(session, doubled, x, out, 0, known=known)[0]
    assert not launch(session, doubled, x, out, 0, known=known)[0]


# --- what has a launch run --------------------------------------------------------------------------------------------


def test_nothing_is_spared_where_nobody_knows_launches(session):
    x, out = inputs(), torch.zeros(N)

    assert [launch(session, doubled, x, out, known=None)[0] for _ in range(3)] == [True, True, True]


def test_a_launch_that_is_noted_runs_though_one_like_it_was(session):
    known, x, out = Launches(), inputs(), torch.zeros(2 * N)

    assert [launch(session, doubled, x, out, known=None, kept=known)[0] for _ in range(2)] == [True, True]
    assert not launch(session, doubled, x, out, known=known, kept=None)[0]


def test_a_launch_that_did_not_run_is_not_kept(session):
    known, later, x, out = Launches(), Launches(), inputs(), torch.zeros(2 * N)
    launch(session, doubled, x, out, known=None, kept=known)

    assert not launch(session, doubled, x, out, known=known, kept=later)[0]
    assert launch(session, doubled, x, out, known=later, kept=None)[0]


def test_a_launch_that_was_not_noted_runs(session):
    known, x, out = Launches(), inputs(), torch.zeros(2 * N)

    assert [launch(session, doubled, x, out, known=known, kept=None)[0] for _ in range(2)] == [True, True]


@pytest.mark.parametrize("kernel", [doubled, blocked, described])
def test_one_loaded_element_that_differs_has_the_launch_run(session, kernel):
    def change(x):
        x[N - 2] = torch.nextafter(x[N - 2], torch.tensor(9.0))

    assert twice(session, kernel, change)
    assert not twice(session, kernel)


def test_a_zero_of_the_other_sign_has_the_launch_run(session):
    known, x = Launches(), torch.zeros(N)
    launch(session, doubled, x, torch.zeros(N), known=known)

    assert launch(session, doubled, -x, torch.zeros(N), known=known)[0]


def test_another_argument_grid_or_layout_has_the_launch_run(session):
    known, x = Launches(), torch.arange(4.0 * N)
    launch(session, scaled, x, torch.zeros(4 * N), N, 2.0, known=known)

    def runs(x, out, *more, **options):
        return launch(session, scaled, x, out, *more, known=known, **options)[0]

    out = torch.zeros(4 * N)
    assert not runs(x, out, N, 2.0)
    assert runs(x, out, N, 3.0)
    assert runs(x, out, N, 2)
    assert runs(x, out, N - 1, 2.0)
    assert runs(x, out, N, 2.0, grid=2)
    assert runs(x, out.double(), N, 2.0)
    assert runs(x, torch.zeros(5 * N), N, 2.0)
    assert runs(x, torch.zeros(8 * N)[::2], N, 2.0)
    assert runs(torch.cat([x, x])[4 * N :], out, N, 2.0)


def test_floats_are_told_apart_by_their_bits(session):
    known, x = Launches(), torch.arange(float(N))
    launch(session, scaled, x, torch.zeros(N), N, 0.0, known=known)
    out = torch.zeros(N)

    assert launch(session, scaled, x, out, N, -0.0, known=known)[0]
    assert bool(out.signbit().all())
    for _ in range(2):
        assert launch(session, scaled, x, out, N, float("nan"), known=known)[0]


def test_a_name_that_means_something_else_has_the_launch_run(session, monkeypatch):
    known, x, out = Launches(), inputs(), torch.zeros(2 * N)
    launch(session, by_global, x, out, known=known)
    assert not launch(session, by_global, x, out, known=known)[0]

    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(3.0))
    launch(session, doubled, x, torch.zeros(2 * N), known=None)  # nobody takes the change for news of its own

    assert launch(session, by_global, x, out, known=known)[0]
    assert out[1] == 6.0


def test_a_kernel_with_a_closure_runs():
    power = 2.0

    def function():
        return power

    assert rules.key_of(function, launch_of(x=1), ()) is None
    assert rules.key_of(doubled.fn, launch_of(x=1), ()) is not None


class Pair(NamedTuple):
    first: int
    second: int


class Other(NamedTuple):
    first: int
    second: int


class Inner(NamedTuple):
    ptr: int


def launch_of(grid=(1, 1, 1), **arguments):
    return Launch("kernel", "", arguments, arguments, grid, tuple(leaves(arguments)), ())


def test_keys_tell_launches_apart_that_do_other_things():
    memory = np.zeros(64, np.float32)
    one, other = torch.zeros(4), torch.zeros(4)
    at = [torch.from_numpy(memory[n : n + 4]) for n in (0, 1)]
    keys = [
        rules.key_of(function, launch, ())
        for function, launch in [
            (doubled.fn, launch_of(x=1)),
            (scaled.fn, launch_of(x=1)),
            (doubled.fn, launch_of(x=True)),
            (doubled.fn, launch_of(x=1, grid=(2, 1, 1))),
            (doubled.fn, launch_of(x=one, out=one)),
            (doubled.fn, launch_of(x=one, out=other)),
            (doubled.fn, launch_of(x=at[0])),
            (doubled.fn, launch_of(x=at[1])),
            (doubled.fn, launch_of(x=(1, 2))),
            (doubled.fn, launch_of(x=Pair(1, 2))),
            (doubled.fn, launch_of(x=Other(1, 2))),
            (doubled.fn, launch_of(x=Inner(1))),
            (doubled.fn, launch_of(x=())),
            (doubled.fn, launch_of(x=((),))),
        ]
    ]

    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_an_argument_of_an_unknown_kind_has_the_launch_run():
    block = TensorDescriptor(torch.zeros(1, N), [1, N], [N, 1], [1, N])

    assert rules.key_of(doubled.fn, launch_of(x=1, by=2.0, kind=tl.float32, n=None), ()) is not None
    for unknown in (object(), doubled, block, (1, block), np.float32(1.0)):
        assert rules.key_of(doubled.fn, launch_of(x=unknown), ()) is None


@pytest.mark.parametrize("kernel", [summed, swapped, telling, telling_once, asserting, by_address, by_cast, undefined])
def test_a_launch_that_does_more_than_load_and_store_runs(session, kernel):
    session.builder.options = dataclasses.replace(session.builder.options, debug=True)

    def store_elsewhere(x, out):
        return launch(session, kernel, x, out, known=known, inputs=())[0]

    known, out = Launches(), torch.zeros(2 * N)

    assert all(store_elsewhere(inputs(), out) for _ in range(3))


def test_atomic_operations_add_each_time(session):
    known, x, out = Launches(), torch.ones(N), torch.zeros(N)

    for _ in range(3):
        launch(session, summed, x, out, N, known=known)

    assert out.tolist() == [3.0] * N


@pytest.mark.parametrize("shift", [0, 4, N - 4])
def test_a_launch_that_stores_where_it_loads_runs(session, shift):
    """Its loads depend on what it stored."""
    known, memory = Launches(), torch.arange(1.0, 3 * N + 1)
    x, out = memory[: 2 * N], memory[shift : shift + 2 * N]

    for _ in range(2):
        assert launch(session, doubled, x, out, known=known, inputs=())[0]
    assert set(known._known.values()) == {None}


def test_a_launch_whose_tensors_came_to_overlap_runs(session):
    memory = np.arange(4.0 * N, dtype=np.float32)
    known, x = Launches(), torch.from_numpy(memory[: 2 * N])
    launch(session, doubled, x, torch.zeros(2 * N), known=known, inputs=())
    over = torch.from_numpy(memory[N - 4 : 3 * N - 4])

    assert x.untyped_storage().data_ptr() != over.untyped_storage().data_ptr()
    assert launch(session, doubled, x, over, known=known, inputs=())[0]


def test_a_launch_that_loads_what_nobody_wrote_runs_and_is_reported(session):
    known, x = Launches(), inputs()
    launch(session, doubled, x, torch.zeros(N), known=known, inputs=())
    bits = int(x.view(torch.int32)[2])

    ran, seen = launch(session, doubled, x, torch.zeros(N), known=known, inputs=(), poison=lambda _: bits)

    assert ran
    assert [report.kind for report in seen.reports.values()] == ["uninitialised"]


def test_a_launch_of_which_something_was_reported_runs_and_is_reported_again(session):
    known, x = Launches(), torch.arange(1.0, N + 1)
    for _ in range(2):
        ran, seen = launch(session, unmasked, x, torch.zeros(2 * N), known=known)

        assert ran
        assert [report.kind for report in seen.reports.values()] == ["out-of-bounds"]


def test_two_programs_that_write_one_element_are_reported_each_time(session):
    known, x = Launches(), inputs()
    for _ in range(2):
        ran, seen = launch(session, clashing, x, torch.zeros(2 * N), known=known, grid=2)

        assert ran
        assert [report.kind for report in seen.reports.values()] == ["double-write"]


def test_a_store_into_an_input_is_reported_each_time(session):
    known, x, out = Launches(), inputs(), torch.zeros(2 * N)
    launch(session, doubled, x, out, known=known)
    assert not launch(session, doubled, x, out, known=known)[0]

    ran, seen = launch(session, doubled, x, out, known=known, inputs={out.untyped_storage().data_ptr()})

    assert ran
    assert [report.kind for report in seen.reports.values()] == ["input-store"]


def test_a_launch_that_raised_is_raised_again(session):
    known, x, out = Launches(), inputs(), torch.zeros(2 * N)
    for _ in range(2):
        with pytest.raises(triton.runtime.errors.InterpreterError):
            launch(session, refusing, x, out, known=known)


def test_those_who_look_into_launches_see_each(session):
    known, x, out = Launches(), inputs(), torch.zeros(2 * N)
    launch(session, doubled, x, out, known=known)

    with count() as counted:
        assert launch(session, doubled, x, out, known=known)[0]
    with trace() as traced:
        assert launch(session, doubled, torch.full((2 * N,), float("inf")), out, known=known)[0]
        assert launch(session, doubled, x, out, known=known)[0]
    assert [each.traffic["x"].loads for each in counted] == [N - 1]
    assert traced is not None
    for options in ({"fill": "nan"}, {"wraps": Unasked()}):
        assert launch(session, doubled, x, out, known=known, **options)[0]
    assert not launch(session, doubled, x, out, known=known)[0]


class Unasked:
    """Where accesses outside a tensor would be told apart."""


def test_other_orders_and_turns_see_each_launch(session):
    known, x, out = Launches(), inputs(), torch.zeros(2 * N)
    launch(session, doubled, x, out, known=known)

    session.order = lambda programs: np.arange(programs)[::-1]
    assert launch(session, doubled, x, out, known=known)[0]
    session.order = None
    with session.interleaved(1):
        assert launch(session, doubled, x, out, known=known)[0]
    session.lockstep, before = False, session.lockstep
    launch(session, doubled, x, plain := torch.zeros(2 * N), known=known)
    session.lockstep = before
    assert torch.equal(plain, out)


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["_ROOM", "_BYTES"])
def test_a_launch_that_takes_more_memory_than_is_allowed_is_not_kept(session, monkeypatch, limit):
    assert not twice(session, doubled)

    monkeypatch.setattr(rules, limit, N)

    assert twice(session, doubled)


def test_what_is_kept_holds_no_tensor(session):
    known = Launches()
    launch(session, doubled, inputs(), torch.zeros(2 * N), known=known)

    assert not [held for held in gc.get_objects() if type(held) is Argument]
    assert all(found is not None for found in known._known.values())
