"""A launch that would load what an earlier one loaded is not run again, and leaves the same bits; any other one runs."""

import dataclasses
import gc

import numpy as np
import pytest
import torch
import triton

from flashverify.interpreter import Sanitizer, count, faithful, trace
from flashverify.interpreter import repeats as rules
from flashverify.interpreter.memory import Argument
from flashverify.interpreter.repeats import Launches
from tests.interpreter.launched_again import (
    N,
    asserting,
    blocked,
    by_address,
    by_cast,
    clashing,
    described,
    doubled,
    inputs,
    launch,
    parted,
    refusing,
    summed,
    swapped,
    telling,
    telling_once,
    twice,
    undefined,
    unmasked,
)


@pytest.fixture
def session():
    with faithful(Sanitizer) as opened:
        yield opened


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


def test_no_order_of_programs_and_no_turns_have_a_known_launch_run(session):
    known, x, out = Launches(), inputs(), torch.zeros(2 * N)
    launch(session, doubled, x, out, known=known)

    session.order = lambda programs: np.arange(programs)[::-1]
    assert not launch(session, doubled, x, out, known=known)[0]
    session.order = None
    with session.interleaved(1):
        assert not launch(session, doubled, x, out, known=known)[0]
    session.lockstep, before = False, session.lockstep
    launch(session, doubled, x, plain := torch.zeros(2 * N), known=known)
    session.lockstep = before
    assert torch.equal(plain, out)


@pytest.mark.parametrize("kernel", [clashing, summed])
def test_programs_that_store_to_one_place_run_in_each_order(session, kernel):
    known, x, out = Launches(), inputs(), torch.zeros(2 * N)
    assert launch(session, kernel, x, out, known=known, grid=2)[0]

    session.order = lambda programs: np.arange(programs)[::-1]
    assert launch(session, kernel, x, out, known=known, grid=2)[0]
    session.order = None


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
