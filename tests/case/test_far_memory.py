"""Tensors that span nearly 2^32 elements: their strides, their values, and what they cost."""

import itertools
import resource

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashverify import parse_case
from flashverify.case.memory.far import cuda, host
from flashverify.case.memory.far.guard import FarOutputs
from flashverify.case.memory.far.problem import far_problem
from flashverify.case.memory.far.strides import FAR_AXES, far_strides, span
from flashverify.case.memory.handed import copied
from flashverify.case.memory.materialize import materialize
from flashverify.errors import UsageError

CASE = parse_case(
    "fv1 batch=3 heads_q=4 heads_kv=2 seq_q=5 seq_k=7 dtype=fp16 gap=3 offset=1 page_size=4 klen=7,2,5 backward=no"
)


def offsets(shape, strides):
    at = np.zeros(1, np.int64)
    for n, stride in zip(shape, strides, strict=True):
        at = (at[:, None] + np.arange(n) * stride).reshape(-1)
    return at


@given(
    shape=st.tuples(*(st.integers(1, 7) for _ in range(4))),
    gap=st.integers(0, 9),
    axis=st.sampled_from([None, 0, 1, 2, 3]),
)
def test_far_elements_are_apart_and_an_offset_that_wraps_is_none_of_them(shape, gap, axis):
    row = shape[3] + gap
    strides = (shape[1] * shape[2] * row, shape[2] * row, row, 1)
    far = far_strides(shape, strides, axis)
    if far is None:
        assert (
            axis == 3
            or max(shape[:3]) == 1
            or (axis is not None and (shape[axis] == 1 or strides[axis] == 1))
            or row == 1
        )
        return

    at = offsets(shape, far)
    assert len(np.unique(at)) == at.size
    assert at.max() + 1 == span(shape, far) < 2**32
    wrapped = at[at >= 2**31] - 2**32
    assert wrapped.size == 0 or wrapped.max() < -(2**27)
    assert all(new % 64 == old % 64 for new, old in zip(far, strides, strict=True))
    if axis is not None:
        assert far[axis] < 2**31
        assert shape[axis] < 3 or (shape[axis] - 1) * far[axis] >= 2**31
        assert [s for a, s in enumerate(far) if a != axis] == [s for a, s in enumerate(strides) if a != axis]


@pytest.mark.parametrize("axis", FAR_AXES)
def test_a_far_problem_has_the_same_values_and_touches_little_memory(axis):
    problem, arena = materialize(CASE)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    far = far_problem(problem, axis)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB
    large = 0
    for old, new in zip(problem.tensors(), far.tensors(), strict=True):
        assert torch.equal(old, new) or torch.equal(old.isnan(), new.isnan())
        large += span(tuple(new.shape), new.stride()) > 2**30
    assert large == {"page": 2, "all": 5}.get(axis, 3)
    assert arena.damage() == []


def test_a_problem_without_the_axis_is_none_and_an_unknown_axis_is_refused():
    problem, _ = materialize(parse_case("fv1 seq_q=1 seq_k=1 dim_qk=8 dim_v=8 backward=no"))

    assert [far_problem(problem, axis) for axis in FAR_AXES] == [None] * len(FAR_AXES)
    with pytest.raises(UsageError, match="axis='channel' is not accepted: one of"):
        far_problem(problem, "channel")


def test_what_a_subject_allocates_is_stretched_along_one_axis_and_knows_what_is_unwritten():
    with FarOutputs(1)() as guard:
        o, lse, counts = torch.empty(2, 3, 4, 8), torch.zeros(3, 4), torch.empty(2, 3, 4, dtype=torch.int32)
        o[0, 2] = 1.0

    with FarOutputs(1)():
        assert copied("k", torch.ones(2, 3, 4, 8)).is_contiguous()
    assert o.stride()[0::2] == (96, 8)
    assert 2 * o.stride(1) > 2**31
    assert int(guard.unwritten(o).sum()) == 2 * 3 * 4 * 8 - 32
    assert lse.stride() == (4, 1)
    assert not lse.any()
    assert counts.is_contiguous()


def test_memory_of_a_subject_with_the_strides_of_a_far_input_is_not_filled():
    strides = far_strides((3, 4, 5, 8), (160, 40, 8, 1), 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with FarOutputs(None)() as guard:
        made = torch.empty_strided((3, 4, 5, 8), strides)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    assert bool(guard.unwritten(made).all())


def test_memory_that_cannot_be_had_is_an_error_of_the_system(monkeypatch):
    def full(_nbytes):
        raise OSError("no addresses")

    monkeypatch.setattr(host, "sparse", full)
    with pytest.raises(OSError, match="no addresses"):
        far_problem(materialize(CASE)[0], "batch")


@pytest.mark.parametrize(("axis", "pages"), [(0, 3), (2, 5), (None, 3 * 2 * 5)])
def test_a_window_of_a_gpu_is_mapped_whole_and_only_pages_with_elements_have_memory_of_their_own(
    monkeypatch, axis, pages
):
    page, calls, released = 2 << 20, [], []

    def call(name, *args):
        calls.append((name, *args))
        if name == "cuMemGetAllocationGranularity":
            args[0]._obj.value = page
        elif name == "cuMemAddressReserve":
            args[0]._obj.value = 1 << 40
        elif name == "cuMemCreate":
            args[0]._obj.value = len(calls)

    monkeypatch.setattr(cuda, "_call", call)
    monkeypatch.setattr(cuda, "_released", lambda *args: released.append(args))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _device=None: None)
    shape, strides = (3, 2, 5, 8), (80, 40, 8, 1)
    far = far_strides(shape, strides, axis)
    window = cuda._Window(torch.zeros(shape, dtype=torch.float16), far)

    (total,) = (args[1] for name, *args in calls if name == "cuMemAddressReserve")
    maps = [(at, size, handle) for name, at, size, _, handle, _ in (c for c in calls if c[0] == "cuMemMap")]
    assert maps[0][0] == 1 << 40
    assert all(at + size == following for (at, size, _), (following, *_) in itertools.pairwise(maps))
    assert maps[-1][0] + maps[-1][1] == (1 << 40) + total
    created = {handle: size for size, handle in ((c[2], n + 1) for n, c in enumerate(calls) if c[0] == "cuMemCreate")}
    own = {handle for *_, handle in maps if [h for *_, h in maps].count(handle) == 1}
    assert sum(created[handle] for handle in own) == pages * page
    assert sum(created.values()) - pages * page == 64 << 20
    base = window.__cuda_array_interface__["data"][0]
    assert base - (1 << 40) >= 2**31 * 2  # an address that wrapped is mapped, too
    for offset in offsets(shape, far):
        assert any(at <= base + 2 * int(offset) < at + size for at, size, handle in maps if handle in own)
    del window
    assert len(released) == 1
