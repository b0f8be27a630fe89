"""Kernels whose arguments are tuples with names: types, replays, reports and races as with flat arguments."""

import operator
from typing import NamedTuple

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from flashverify.interpreter import Sanitizer, session, watch
from flashverify.interpreter.hooks import handle
from flashverify.interpreter.keys import hold, key_of
from flashverify.interpreter.layer import leaves


class View(NamedTuple):
    ptr: object
    row: tl.int64


class Factors(NamedTuple):
    scale: tl.float32
    shift: object
    table: View


class Rows(NamedTuple):
    ptr: object
    keep: object


@triton.jit
def rows_of(x, i, N: tl.constexpr):
    at = x.row * 0 + i.to(tl.int64) * x.row
    return Rows(x.ptr + at[:, None] + tl.arange(0, N)[None, :], i[:, None] < N)


@triton.jit
def scaled(x, factors):
    x = x * factors.scale
    if factors.shift is not None:
        x += factors.shift
    return x


@triton.jit
def kernel(x: View, out: View, factors: Factors, PAST: tl.constexpr, N: tl.constexpr):
    p = tl.program_id(0)
    i = p * N + tl.arange(0, N)
    rows = rows_of(x, i, N * 4)
    z = scaled(tl.load(rows.ptr, mask=i[:, None] < PAST, other=0.0), factors)
    if factors.table.ptr is not None:
        z += tl.load(factors.table.ptr + i)[:, None]
    tl.store(rows_of(out, i, N * 4).ptr, z)
    tl.static_assert(x.row.dtype == tl.int64)


def launch(shift=None, table=None, past=16, programs=4):
    x = torch.arange(16 * 16, dtype=torch.float32).reshape(16, 16)
    out = torch.zeros(16, 16)
    factors = Factors(2.0, shift, View(table, 0))
    kernel[(programs,)](View(x, 16), View(out, 16), factors, PAST=past, N=4)
    return x, out


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("shift", [None, 3.0])
@pytest.mark.parametrize("table", [None, torch.arange(16.0)])
def test_records_are_computed_with_as_flat_arguments_are(lockstep, shift, table):
    with session(lockstep=lockstep) as opened:
        for _ in range(3):  # recorded, then replayed
            x, out = launch(shift, table)

            expected = x * 2 + (shift or 0.0) + (0.0 if table is None else table[:, None])
            assert torch.equal(out, expected)
        assert not opened.fallbacks


def test_functions_that_take_and_return_records_are_replayed():
    with session() as opened:
        launch()
        launch()

        functions = [key for key in opened.lockstep_class.tapes if key[0] is rows_of]
        assert functions
        assert all(opened.lockstep_class.tapes[key] is not None for key in functions)


@pytest.mark.parametrize("lockstep", [False, True])
def test_a_report_names_the_record_of_a_tensor(lockstep):
    short = torch.zeros(15)
    with session(Sanitizer, lockstep=lockstep), watch() as watched:
        launch(table=short)
        kernel_reports = [(report.kind, report.argument) for report in watched.reports.values()]

    assert kernel_reports == [("out-of-bounds", "factors.table")]


def test_leaves_are_named_by_their_place():
    found = dict(leaves({"n": 1, "x": View("a", 2), "f": Factors(1.0, None, View("b", 3)), "pair": (4, (5,))}))

    assert list(found) == ["n", "x", "x.row", "f.scale", "f.shift", "f.table", "f.table.row", "pair.0", "pair.1.0"]
    assert found["f.table"] == "b"


def test_a_record_of_a_launch_has_the_form_of_any_other_like_it():
    def scalar(kind, value=0):
        return tl.core.tensor(handle(np.array([value]), kind), kind)

    def form(view):
        inputs = []
        return key_of("call", (view,), {}, inputs), inputs

    held = Factors(tl.constexpr(2), scalar(tl.int32), View(scalar(tl.int32), scalar(tl.int64)))
    others = [
        Factors(tl.constexpr(3), scalar(tl.int32), View(scalar(tl.int32), scalar(tl.int64))),
        Factors(tl.constexpr(2), scalar(tl.int64), View(scalar(tl.int32), scalar(tl.int64))),
        Factors(tl.constexpr(2), scalar(tl.int32), View(None, scalar(tl.int64))),
        Factors(tl.constexpr(2), scalar(tl.int32), Rows(scalar(tl.int32), scalar(tl.int64))),
    ]
    alike = Factors(tl.constexpr(2), scalar(tl.int32, 5), View(scalar(tl.int32, 6), scalar(tl.int64, 7)))
    before = form(held)[0]
    hold([held])
    try:
        key, inputs = form(held)
        inside, pieces = form(held.table)
        keys = {form(other)[0] for other in others}
        same, tensors = form(alike)
    finally:
        hold(())

    assert key == before == same == form(held)[0]
    assert len({key, *keys}) == 1 + len(others)
    assert inside == form(held.table)[0]
    assert all(map(operator.is_, inputs, (held.shift, *held.table)))
    assert all(map(operator.is_, pieces, held.table))
    assert all(map(operator.is_, tensors, (alike.shift, *alike.table)))
