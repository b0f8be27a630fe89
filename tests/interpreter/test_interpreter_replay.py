"""A call that is replayed does what it did the first time, on other data; what decides by data is never replayed."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from flashverify.interpreter import Layer, Sanitizer, session, watch
from flashverify.interpreter.keys import key_of

OFFSET = tl.constexpr(1)


@triton.jit
def scaled(x, factor):
    return x * factor + OFFSET


@triton.jit
def halvings(n):
    steps = 0
    while n > 1:
        n = n // 2
        steps += 1
    return steps


@triton.jit
def located(ptr, i, N: tl.constexpr):
    return ptr + i[:, None] * N + tl.arange(0, N)[None, :], i[:, None] < N


@triton.jit
def tile(ptr, i, N: tl.constexpr):
    ptrs, keep = located(ptr, i, N)
    return tl.load(ptrs, mask=keep, other=0.0)


@triton.jit
def everything(x_ptr, y_ptr, out_ptr, factor, N: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, N)
    x = tile(x_ptr + p * N * N, i, N)
    y = tile(y_ptr + p * N * N, i, N)
    z = tl.dot(x, tl.trans(y)) + scaled(x, factor) * scaled(x, x) - tl.max(y, 1)[:, None]
    z = tl.where(z > 0, z, -z).to(tl.bfloat16).to(tl.float32)
    for k in range(halvings(p + 1)):
        z += tl.exp2(-z) + k
    ptrs, keep = located(out_ptr + p * N * N, i, N)
    tl.store(ptrs, z, mask=keep)


def tapes(opened):
    return opened.lockstep_class.tapes


@pytest.mark.parametrize("mixins", [(), (Sanitizer,)])
def test_other_data_and_other_scalars_give_other_results(mixins):
    inputs = [torch.randn(2, 6, 16, 16, generator=torch.Generator().manual_seed(n)) for n in range(4)]
    found = {}
    for lockstep in (False, True):
        with session(*mixins, lockstep=lockstep) as opened:
            outs = [torch.zeros(6, 16, 16) for _ in inputs]
            for n, (x, out) in enumerate(zip(inputs, outs, strict=True)):
                everything[(6,)](x[0], x[1], out, 0.5 + n, N=16)
            assert bool(tapes(opened)) == lockstep
            assert not opened.fallbacks
        found[lockstep] = outs

    assert all(map(torch.equal, found[False], found[True]))
    assert not torch.equal(found[True][0], found[True][1])


@triton.jit
def counting(x_ptr, out_ptr):
    p = tl.program_id(0)
    tl.store(out_ptr + p, halvings(tl.load(x_ptr + p)))


def test_a_function_that_decides_by_data_is_not_replayed():
    with session() as opened:
        for values in ([1, 2, 4, 8], [16, 16, 16, 16], [3, 3, 3, 1000]):
            out = torch.zeros(4, dtype=torch.int32)
            counting[(4,)](torch.tensor(values, dtype=torch.int32), out)
            assert out.tolist() == [value.bit_length() - 1 for value in values]
        assert [tape for key, tape in tapes(opened).items() if key[0] is halvings] == [None]


@triton.jit
def constants(out_ptr, KIND: tl.constexpr):
    if KIND == 0:
        value = scaled(tl.full([1], 0.0, tl.float32), -0.0)
    elif KIND == 1:
        value = 1 / (tl.full([1], 0.0, tl.float32) - 0.0 * -1.0)
    elif KIND == 2:
        value = 1 / tl.full([1], -0.0, tl.float32)
    else:
        value = 1 / tl.full([1], 0.0, tl.float32)
    tl.store(out_ptr + tl.arange(0, 1), value)


def test_zeros_of_either_sign_are_different_constants():
    def run():
        out = torch.zeros(4, 1)
        for kind in range(4):
            constants[(2,)](out[kind], KIND=kind)
        return out.view(torch.int32).tolist()

    with session(lockstep=False):
        expected = run()
    with session():
        assert [run(), run()] == [expected, expected]


@pytest.mark.parametrize(
    "values", [(1, 1.0), (1, True), (0.0, -0.0), ((1, 2), [1, 2]), (tl.constexpr(1), 1), (slice(None), None)]
)
def test_constants_that_mean_different_things_have_different_keys(values):
    one, other = (key_of("f", (value,), {}, []) for value in values)

    assert None not in (one, other)
    assert one != other


@pytest.mark.parametrize("value", [float("nan"), np.float32(1), torch.ones(1), object(), {1: 2}])
def test_what_is_not_known_to_be_constant_has_no_key(value):
    assert key_of("f", (value,), {}, []) is None
    assert key_of("f", (), {"x": value}, []) is None


@triton.jit
def products(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(out_ptr + i, x * x)
    tl.store(out_ptr + N + i, scaled(x, x))
    tl.store(out_ptr + 2 * N + i, x * y)
    tl.store(out_ptr + 3 * N + i, scaled(x, y))


def test_one_tensor_twice_is_not_two_tensors():
    x, y, out = torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0]), torch.zeros(4, 2)
    with session():
        for _ in range(2):
            products[(1,)](x, y, out.zero_(), N=2)
            assert out.tolist() == [[4, 9], [5, 10], [10, 21], [11, 22]]


def test_a_name_that_means_something_else_now(monkeypatch):
    x, out = torch.tensor([2.0, 3.0]), torch.zeros(4, 2)
    with session():
        products[(1,)](x, x, out, N=2)
        monkeypatch.setitem(scaled.fn.__globals__, "OFFSET", tl.constexpr(5))
        products[(1,)](x, x, out, N=2)

    assert out[1].tolist() == [9.0, 14.0]


class Extension(Layer):
    """Nothing of its own."""


def test_what_an_extension_recorded_is_kept_until_a_name_means_something_else(monkeypatch):
    x, out = torch.tensor([2.0, 3.0]), torch.zeros(4, 2)
    with session() as opened:
        kinds = []
        for _ in range(2):
            with opened.extended(Extension):
                products[(1,)](x, x, out, N=2)
                kinds.append(opened.lockstep_class)
        assert kinds[0] is kinds[1]
        assert kinds[0].tapes
        products[(1,)](x, x, out, N=2)
        monkeypatch.setitem(scaled.fn.__globals__, "OFFSET", tl.constexpr(5))
        products[(1,)](x, x, out, N=2)
        with opened.extended(Extension):
            products[(1,)](x, x, out.zero_(), N=2)

    assert out[1].tolist() == [9.0, 14.0]


@triton.jit
def outermost(ptr, i, factor, N: tl.constexpr):
    return scaled(tile(ptr, i, N), factor) - scaled(i, 1)[:, None]


@triton.jit
def nested(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tile(x_ptr, i, N)
    y = scaled(x, 2.0) + tl.sum(scaled(i, 1), 0)
    z = outermost(x_ptr, i, 2.0, N) + y
    ptrs, keep = located(out_ptr, i, N)
    tl.store(ptrs, z, mask=keep)


def test_a_call_that_is_known_is_taken_into_the_recording_of_another_one():
    x = torch.randn(16, 16, generator=torch.Generator().manual_seed(1))
    found = []
    for replaying in (False, True):
        with session(Sanitizer) as opened:
            if not replaying:
                opened.lockstep_class.tapes = None
            for data in (x, 2 * x, x[:, :15]):
                with watch(inputs={data.untyped_storage().data_ptr()}) as seen:
                    out = torch.zeros(16, 16)
                    nested[(1,)](data, out, N=16)
                places = {(report.place.line, report.place.caller) for report in seen.reports.values()}
                found.append((out.tolist(), places))
            assert not replaying or [key for key in tapes(opened) if key[0] is outermost]

    assert found[:3] == found[3:]
    assert len(found[2][1]) == 2


@triton.jit
def wide(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out_ptr + i, tl.load(x_ptr + i) + tl.program_id(0).to(tl.float32))


def test_a_replay_keeps_to_the_memory_allowed():
    x, out = torch.arange(512.0), torch.zeros(512)
    with session(limit=128) as opened:
        attempts = []
        for _ in range(3):
            before = opened.attempts
            opened.partitions.clear()
            wide[(8,)](x, out.zero_(), N=64)
            attempts.append(opened.attempts - before)
            assert torch.equal(out, x + torch.arange(8.0).repeat_interleave(64))

    assert attempts == [5, 5, 5]
