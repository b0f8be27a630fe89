"""Block pointers and tensor descriptors: their values, in lockstep, and what the sanitizer sees of them."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from flashverify.interpreter import Sanitizer, session, watch

advancing = pytest.mark.skipif(not hasattr(tl, "advance"), reason="this release of Triton has no block pointers")


@triton.jit
def scaled(block, factor):
    return tl.load(block, boundary_check=(0, 1), padding_option="zero") * factor


@triton.jit
def by_block_pointer(x, y, rows, columns, stride, factor, M: tl.constexpr, N: tl.constexpr, CHECK: tl.constexpr):
    first = tl.program_id(0) * M
    read = tl.make_block_ptr(x, (rows, columns), (stride, 1), (first, 0), (M, N), (1, 0))
    write = tl.make_block_ptr(y, (rows, columns), (columns, 1), (first, 0), (M, N), (1, 0))
    for _ in range(0, columns, N):
        tl.store(write, scaled(read, factor).to(y.dtype.element_ty), boundary_check=CHECK)
        read = tl.advance(read, (0, N))
        write = write.advance((0, N))


@triton.jit
def transposed_sum(x, y, rows, columns, stride, N: tl.constexpr, M: tl.constexpr):
    block = tl.make_block_ptr(x, (columns, rows), (1, stride), (0, tl.program_id(0) * M), (N, M), (0, 1))
    tile = tl.load(block, boundary_check=(1,))
    m = tl.program_id(0) * M + tl.arange(0, M)
    tl.store(y + m, tl.sum(tile, 0), mask=m < rows)


@triton.jit
def by_descriptor(source, target, rows, columns, M: tl.constexpr, N: tl.constexpr):
    if isinstance(target, tl.tensor_descriptor):
        out = target
    else:
        out = tl.make_tensor_descriptor(target, [rows, columns], [columns, 1], [M, N])
    first = tl.program_id(0) * M
    for n in range(0, columns, N):
        out.store([first, n], source.load([first, n]) + 1)


@triton.jit
def gathered(x, index, y, rows, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, N], [N, 1], [1, N])
    out = tl.make_tensor_descriptor(y, [M, N], [N, 1], [1, N])
    m = tl.arange(0, M)
    out.scatter(source.gather(tl.load(index + m), 0), m, 0)


@triton.jit
def added(x, y, rows, M: tl.constexpr, N: tl.constexpr):
    block = tl.make_tensor_descriptor(x, [rows, N], [N, 1], [M, N]).load([tl.program_id(0) * M, 0])
    tl.make_tensor_descriptor(y, [M, N], [N, 1], [M, N]).atomic_add([0, 0], block)


@pytest.fixture(params=["lockstep", "plain"])
def opened(request):
    with session(Sanitizer, lockstep=request.param == "lockstep") as found:
        yield found


def numbers(rows, columns, gap=0):
    whole = torch.from_numpy(np.random.default_rng(7).standard_normal((rows, columns + gap), np.float32))
    return whole[:, :columns]


@advancing
def test_blocks_at_the_edges_are_read_and_written(opened):
    x, y = numbers(21, 24, gap=3), torch.zeros(21, 24)
    with watch() as seen:
        by_block_pointer[(3,)](x, y, 21, 24, x.stride(0), 2.0, M=8, N=16, CHECK=(0, 1))

    assert torch.equal(y, 2 * x)
    assert not seen.reports
    assert not seen.lanes
    assert not opened.fallbacks


@advancing
def test_an_edge_that_is_not_checked_is_out_of_bounds(opened):
    x, y = numbers(21, 24), torch.zeros(21, 24)
    with watch() as seen:
        by_block_pointer[(3,)](x, y, 21, 24, x.stride(0), 2.0, M=8, N=16, CHECK=(1,))

    [report] = seen.reports.values()
    assert (report.kind, report.access, report.argument) == ("out-of-bounds", "store", "y")
    assert report.place.line == by_block_pointer.fn.__code__.co_firstlineno + 6
    assert torch.equal(y, 2 * x)


def test_lanes_outside_without_padding_are_undefined(opened):
    x, y = numbers(13, 16), torch.zeros(13)
    with watch() as seen:
        transposed_sum[(2,)](x, y, 13, 16, x.stride(0), N=16, M=8)

    assert [lane.argument for lane in seen.lanes.values()] == ["x"]
    assert torch.allclose(y, x.sum(1), rtol=0, atol=16 * 2**-22)


@pytest.mark.parametrize("host", [True, False])
def test_descriptors_of_host_and_device(opened, host):
    x, y = numbers(21, 24), torch.zeros(21, 24)
    target = TensorDescriptor.from_tensor(y, [8, 16]) if host else y
    with watch() as seen:
        by_descriptor[(3,)](TensorDescriptor.from_tensor(x, [8, 16]), target, 21, 24, M=8, N=16)

    assert torch.equal(y, x + 1)
    assert not seen.reports
    assert not opened.fallbacks


def test_a_store_through_a_descriptor_larger_than_its_tensor_is_out_of_bounds(opened):
    x, y = numbers(21, 24), torch.zeros(24, 24)
    with watch() as seen:
        by_descriptor[(3,)](TensorDescriptor.from_tensor(x, [8, 16]), y[:21], 24, 24, M=8, N=16)

    assert {(report.kind, report.argument) for report in seen.reports.values()} == {("out-of-bounds", "target")}
    assert not y[21:].any()


def test_a_store_into_an_input_through_a_descriptor_is_seen(opened):
    x, y = numbers(8, 16), torch.zeros(8, 16)
    with watch(inputs={y.untyped_storage().data_ptr()}) as seen:
        by_descriptor[(1,)](TensorDescriptor.from_tensor(x, [8, 16]), y, 8, 16, M=8, N=16)

    assert {(report.kind, report.argument) for report in seen.reports.values()} == {("input-store", "target")}


def test_padding_of_a_descriptor_may_be_nan(opened):
    x, y = numbers(5, 16), torch.zeros(8, 16)
    by_descriptor[(1,)](TensorDescriptor.from_tensor(x, [8, 16], padding="nan"), y, 8, 16, M=8, N=16)

    assert torch.equal(y[:5], x + 1)
    assert y[5:].isnan().all()


def test_rows_are_gathered_and_scattered(opened):
    x, y, index = numbers(20, 16), torch.zeros(8, 16), torch.tensor([3, 0, 19, 7, 7, 25, 1, 2], dtype=torch.int32)
    gathered[(1,)](x, index, y, 20, M=8, N=16)

    assert torch.equal(y, torch.where(index[:, None] < 20, x[index.clamp(max=19)], 0))


def test_programs_add_through_a_descriptor(opened):
    x, y = numbers(16, 16), torch.zeros(8, 16)
    added[(2,)](x, y, 16, M=8, N=16)

    assert torch.equal(y, x[:8] + x[8:])


def test_what_the_hardware_refuses_of_a_descriptor_is_refused(opened):
    x, y = numbers(8, 16), torch.zeros(8, 18)
    with pytest.raises(triton.runtime.errors.InterpreterError, match="no multiple of 16 bytes"):
        by_descriptor[(1,)](TensorDescriptor.from_tensor(x, [8, 16]), y, 8, 18, M=8, N=16)
    with pytest.raises(triton.runtime.errors.InterpreterError, match="not aligned to 16 bytes"):
        by_descriptor[(1,)](TensorDescriptor.from_tensor(x, [8, 16]), y.view(-1)[1:], 7, 16, M=8, N=16)


@triton.jit
def block_of(x, rows, M: tl.constexpr, N: tl.constexpr):
    return tl.make_tensor_descriptor(x, [rows, N], [N, 1], [M, N]).load([0, 0])


@triton.jit
def copied(x, y, rows, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y + at, block_of(x, rows, M, N))


def test_a_descriptor_of_a_device_function_is_checked_at_each_launch(opened):
    x, y = numbers(9, 16), torch.zeros(8, 16)
    for _ in range(2):
        copied[(1,)](x, y, 9, M=8, N=16)
    with pytest.raises(triton.runtime.errors.InterpreterError, match="not aligned to 16 bytes"):
        copied[(1,)](x.view(-1)[1:], y, 8, M=8, N=16)

    assert torch.equal(y, x[:8])


@triton.jit
def with_flag(x, y, flag, N: tl.constexpr):
    n = tl.arange(0, N)
    values = tl.load(x + n)
    if flag:
        values = values + 1
    tl.store(y + n, tl.where((n < 2) & flag, -values, values))


@pytest.mark.parametrize("flag", [True, False])
def test_a_flag_of_python_at_run_time_is_one_bit(opened, flag):
    x, y = numbers(1, 4)[0], torch.zeros(4)
    with_flag[(1,)](x, y, flag, N=4)

    assert torch.equal(y, torch.cat([-(x[:2] + 1), x[2:] + 1]) if flag else x)
