"""What the sanitizer reports of single kernels, in lockstep and one program at a time."""

import pytest
import torch
import triton
import triton.language as tl

from flashverify.campaign.toolkit import BUNDLED, load_toolkit
from flashverify.interpreter import Sanitizer, active, session, watch

BOTH = pytest.mark.parametrize("lockstep", [True, False], ids=["lockstep", "alone"])


@triton.jit
def copy(x_ptr, out_ptr, n, shift, limit, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i + shift, mask=i < limit, other=0.0)
    tl.store(out_ptr + i, x, mask=i < n)


@triton.jit
def without_other(x_ptr, out_ptr, n, GUARDED: tl.constexpr):
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + i, mask=i < n)
    if GUARDED:
        x = tl.where(i < n, x, 0.0)
    tl.store(out_ptr + tl.program_id(0), tl.max(x, 0))


@triton.jit
def scalar_with_other(x_ptr, out_ptr, n, FILL: tl.constexpr):
    p = tl.program_id(0)
    tl.store(out_ptr + p, tl.load(x_ptr + p, mask=p < n, other=FILL))


@triton.jit
def collide(out_ptr):
    tl.store(out_ptr + tl.program_id(0) // 2, 1.0)


@triton.jit
def neighbour(x_ptr, BEFORE: tl.constexpr):
    p = tl.program_id(0)
    if BEFORE:
        y = tl.load(x_ptr + (p + 1) % 4)
        tl.store(x_ptr + p, y)
    else:
        tl.store(x_ptr + p, 1.0)
        tl.load(x_ptr + p // 2)


@triton.jit
def accumulate(x_ptr, total_ptr, PAST: tl.constexpr):
    p = tl.program_id(0)
    tl.atomic_add(total_ptr + PAST, tl.load(x_ptr + p))


@triton.jit
def last_one_reads(x_ptr, count_ptr, out_ptr, n):
    p = tl.program_id(0)
    tl.store(x_ptr + p, 1.0)
    if tl.atomic_add(count_ptr, 1) == n - 1:
        total = 0.0
        for j in range(n):
            total += tl.load(x_ptr + j)
        tl.store(out_ptr, total)


@triton.jit
def recast(x_ptr, out_ptr, shift):
    at = (x_ptr + shift).to(tl.int64, bitcast=True).to(tl.pointer_type(tl.float32), bitcast=True)
    tl.store(out_ptr, tl.load(at))


def reports(lockstep, kernel, grid, *args, known=None, **kwargs):
    with session(Sanitizer, lockstep=lockstep), watch(**(known or {})) as seen:
        kernel[grid](*args, **kwargs)
    return seen


def only(seen):
    (report,) = seen.reports.values()
    return report


@BOTH
def test_elements_past_the_end_are_masked_off_and_named(lockstep):
    out = torch.full((16,), -1.0)
    report = only(reports(lockstep, copy, (4,), torch.ones(16), out, 16, 2, 16, BLOCK=4))

    assert (report.kind, report.access, report.kernel) == ("out-of-bounds", "load", "copy")
    assert (report.argument, report.program, report.index, report.lanes) == ("x_ptr", (3, 0, 0), (16,), 2)
    assert report.place.file == __file__
    assert report.place.line == copy.fn.__code__.co_firstlineno + 3
    assert out.tolist() == [1.0] * 14 + [0.0] * 2


@BOTH
def test_elements_before_the_start(lockstep):
    report = only(reports(lockstep, copy, (4,), torch.ones(32)[8:24], torch.ones(16), 16, -3, 16, BLOCK=4))

    assert (report.index, report.program, report.detail) == ((-3,), (0, 0, 0), "3 elements before the tensor")


@BOTH
def test_another_tensor_next_to_it_is_not_its_own(lockstep):
    memory = torch.arange(32.0)
    before = memory.clone()
    report = only(reports(lockstep, copy, (4,), memory[:16], memory[16:28], 16, 0, 16, BLOCK=4))

    assert (report.access, report.argument, report.index) == ("store", "out_ptr", (12,))
    assert memory[28:].equal(before[28:])


@BOTH
def test_gaps_between_rows(lockstep):
    x = torch.ones(4, 8)[:, :6]
    report = only(reports(lockstep, copy, (4,), x, torch.ones(16), 16, 0, 16, BLOCK=4))

    assert (report.index, report.lanes) == ((6,), 4 if lockstep else 2)
    assert "gap" in report.detail


@BOTH
def test_a_view_of_one_element_has_one(lockstep):
    x = torch.ones(1).expand(16)

    report = only(reports(lockstep, copy, (4,), x, torch.ones(16), 16, 0, 16, BLOCK=4))
    assert (report.index, report.lanes) == ((1,), 15 if lockstep else 3)


@BOTH
def test_lanes_without_other_are_noted_and_filled(lockstep):
    found = {}
    for fill in (None, "nan", "high", "low"):
        out = torch.zeros(2)
        seen = reports(lockstep, without_other, (2,), torch.ones(8), out, 5, GUARDED=False, known={"fill": fill})
        (lane,) = seen.lanes.values()
        found[fill] = out[0].item()

    assert (lane.argument, lane.lane, lane.program) == ("x_ptr", (5,), (0, 0, 0))
    assert not seen.reports
    assert found == {None: 1.0, "nan": 1.0, "high": pytest.approx(3e38), "low": 1.0}


@BOTH
def test_guarded_lanes_do_not_depend_on_the_fill(lockstep):
    for fill in ("nan", "high", "low"):
        out = torch.zeros(2)
        reports(lockstep, without_other, (2,), torch.ones(8), out, 5, GUARDED=True, known={"fill": fill})
        assert out.tolist() == [1.0, 1.0]


@BOTH
def test_two_programs_that_write_one_element(lockstep):
    report = only(reports(lockstep, collide, (4,), torch.zeros(2)))

    assert (report.kind, report.argument) == ("double-write", "out_ptr")
    assert "program (" in report.detail


@BOTH
@pytest.mark.parametrize("before", [True, False], ids=["read-first", "written-first"])
def test_reading_what_another_program_stores(lockstep, before):
    report = only(reports(lockstep, neighbour, (4,), torch.zeros(4), BEFORE=before))

    assert (report.kind, report.access, report.argument) == ("race", "load", "x_ptr")


@BOTH
def test_atomic_operations_do_not_collide(lockstep):
    x, total = torch.ones(4), torch.zeros(1)

    assert not reports(lockstep, accumulate, (4,), x, total, PAST=0).reports
    assert total.item() == 4.0
    report = only(reports(lockstep, accumulate, (4,), x, total, PAST=1))
    assert (report.kind, report.access, report.argument) == ("out-of-bounds", "atomic", "total_ptr")


@BOTH
def test_programs_that_atomic_operations_put_in_order_do_not_race(lockstep):
    out = torch.zeros(1)

    assert not reports(
        lockstep, last_one_reads, (4,), torch.zeros(4), torch.zeros(1, dtype=torch.int32), out, 4
    ).reports
    assert out.item() == 4.0


@BOTH
def test_memory_that_nobody_has_written(lockstep):
    word = 0x7FE5C3A1
    x = torch.zeros(16)
    x.view(torch.int32)[5:7] = word
    known = {"poison": lambda tensor: word if tensor.data_ptr() == x.data_ptr() else None}
    report = only(reports(lockstep, copy, (4,), x, torch.zeros(16), 16, 0, 16, BLOCK=4, known=known))

    assert (report.kind, report.argument, report.index) == ("uninitialised", "x_ptr", (5,))
    assert report.lanes == 2


@BOTH
def test_stores_into_inputs(lockstep):
    out = torch.zeros(16)
    known = {"inputs": frozenset({out.untyped_storage().data_ptr()})}
    report = only(reports(lockstep, copy, (4,), torch.ones(16), out, 16, 0, 16, BLOCK=4, known=known))

    assert (report.kind, report.argument, report.index) == ("input-store", "out_ptr", (0,))


@BOTH
def test_pointers_that_went_through_an_integer_are_found_by_address(lockstep):
    x, out = torch.arange(4.0), torch.zeros(1)

    assert not reports(lockstep, recast, (1,), x, out, 3).reports
    assert out.item() == 3.0
    report = only(reports(lockstep, recast, (1,), x, out, 2**40))
    assert (report.kind, report.argument) == ("out-of-bounds", "")


def test_reports_are_one_per_kind_line_and_argument():
    seen = reports(False, copy, (4,), torch.ones(4), torch.ones(16), 16, 0, 16, BLOCK=4)

    assert len(seen.reports) == 1
    assert seen.dropped == {"out-of-bounds": 2}
    assert seen.launches == 1


def test_a_watch_needs_a_sanitizer():
    with watch() as nothing:
        assert nothing is None
    with session(), watch() as nothing:
        assert nothing is None


def test_workers_run_interpreted_kernels_under_the_sanitizer():
    with load_toolkit(BUNDLED).open("cpu", plain=False, numerics="ieee"):
        assert isinstance(active().builder, Sanitizer)


@BOTH
@pytest.mark.parametrize("fill", [0.0, 2.0])
def test_a_scalar_that_is_masked_off_is_its_other_and_zero_is_one(lockstep, fill):
    out = torch.full((4,), -1.0)

    seen = reports(lockstep, scalar_with_other, (4,), torch.ones(2), out, 2, FILL=fill)

    assert not seen.reports
    assert not seen.lanes
    assert out.tolist() == [1.0, 1.0, fill, fill]
