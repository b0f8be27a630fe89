"""Memory of tensors that are known is read and written as the native loop does it."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from flashverify.interpreter import Sanitizer, gather, session


@triton.jit
def shuffle(x_ptr, at_ptr, out_ptr, stride, N: tl.constexpr):
    i = tl.arange(0, N)
    at = tl.load(at_ptr + i)
    x = tl.load(x_ptr + at * stride, mask=at < N, other=1)
    tl.store(out_ptr + at * stride, x + x, mask=at < N)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32, torch.uint8, torch.float16])
@pytest.mark.parametrize("start", [0, 3])
def test_memory_of_a_known_tensor(dtype, start):
    memory = torch.arange(64).to(dtype)
    at = torch.tensor([3, 1, 0, 7, 1 << 30, 5, -(1 << 30) + (1 << 30), 9], dtype=torch.int32)
    found = {}
    for mixins in ((), (Sanitizer,)):
        out = torch.zeros(64, dtype=dtype)
        with session(*mixins) as opened:
            for _ in range(2):
                shuffle[(1,)](memory[start::2], at, out[start::2], 2, N=8)
            assert not opened.fallbacks
        found[mixins] = out

    assert torch.equal(*found.values())
    assert found[()].any()


@pytest.mark.parametrize("kept", ["all", "some", "none"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_a_gather_reads_what_the_native_loop_reads(dtype, kept):
    generator = np.random.default_rng(1)
    memory = generator.integers(0, 200, 5000).astype(dtype)
    places = generator.integers(0, memory.size, (40, 50))
    at = np.uint64(memory.ctypes.data) + (places * memory.itemsize).astype(np.uint64)
    keep = np.full(at.shape, kept == "all") if kept != "some" else generator.random(at.shape) < 0.7
    at = np.where(keep, at, np.uint64(64))  # never read
    fill = generator.integers(0, 200, at.shape).astype(dtype)

    assert np.array_equal(gather.load(at, keep, fill, np.dtype(dtype)), np.where(keep, memory[places], fill))
    assert np.array_equal(gather.load(at, keep, None, np.dtype(dtype)), np.where(keep, memory[places], 0))


def test_a_gather_of_addresses_between_elements_is_right_too():
    memory = np.arange(4000, dtype=np.uint8)
    at = np.uint64(memory.ctypes.data) + np.arange(0, 3000, 3, dtype=np.uint64)
    found = gather.load(at, np.ones(at.shape, bool), None, np.dtype(np.uint16))

    assert np.array_equal(found, memory[0:3000:3] + 256 * memory[1:3001:3].astype(np.uint16))


@pytest.mark.parametrize("kept", ["all", "some", "none"])
@pytest.mark.parametrize("size", [16, 5000])
def test_a_scatter_writes_what_the_native_loop_writes_the_last_one_staying(size, kept):
    generator = np.random.default_rng(2)
    memory, expected = np.zeros(900, np.uint32), np.zeros(900, np.uint32)
    places = generator.integers(0, memory.size, size)
    keep = np.full(size, kept == "all") if kept != "some" else generator.random(size) < 0.7
    data = np.arange(1, size + 1, dtype=np.uint32)
    for place, value, wanted in zip(places, data, keep, strict=True):
        if wanted:
            expected[place] = value
    gather.store(np.uint64(memory.ctypes.data) + (places * 4).astype(np.uint64), data, keep)

    assert np.array_equal(memory, expected)
