import dataclasses
import itertools
import time

import numpy as np
import pytest
import torch

from flashverify.campaign.worker.search import draw
from flashverify.case import LAYOUTS, PLAIN_POISONS, POISONS, Case, Grad, Mask, Storage, Values
from flashverify.case.memory.arena import GUARD
from flashverify.case.memory.materialize import materialize
from flashverify.case.memory.poisons import poisoned
from flashverify.case.space.strategies import cases
from flashverify.case.supports import Supports
from flashverify.case.text import parse_case
from flashverify.errors import UsageError

BASE = Case(
    batch=2,
    heads_q=4,
    heads_kv=2,
    seq_q=9,
    seq_k=11,
    dim_qk=8,
    dim_v=16,
    mask=Mask(key_lengths=(11, 4), query_lengths=(9, 5)),
    grad=Grad(dlse=True),
)
NAMES = ("q", "k", "v", "do", "dlse")
BITS = {"fp16": torch.int16, "bf16": torch.int16, "fp32": torch.int32}
STORAGES = [
    Storage(layout=layout, gap=gap, offset=offset, expand=expand)
    for layout, gap, offset, expand in itertools.product(LAYOUTS, (0, 3, 8), (0, 1, 8), (False, True))
]


def inside(name, tensor):
    """The elements within the declared lengths, batch by batch."""
    lengths = (11, 4) if name in ("k", "v") else (9, 5)
    return [tensor[b, :, :n] for b, n in enumerate(lengths)]


@pytest.mark.parametrize("storage", STORAGES, ids=str)
def test_views_have_the_shapes_and_strides_of_the_storage(storage):
    problem, _ = materialize(dataclasses.replace(BASE, storage=storage))

    for name, shape in (("q", BASE.shape_q), ("k", BASE.shape_k), ("v", BASE.shape_v), ("do", BASE.shape_o)):
        tensor = getattr(problem, name)
        row = shape[3] + storage.gap
        stored = 1 if storage.expand and name in ("k", "v") else shape[1]
        head, step = (shape[2] * row, row) if storage.layout == "bhsd" else (row, stored * row)
        assert shape == tuple(tensor.shape)
        assert (stored * shape[2] * row, 0 if stored < shape[1] else head, step, 1) == tensor.stride()
        assert (storage.offset * tensor.itemsize) % 16 == tensor.data_ptr() % 16
    assert tuple(problem.dlse.shape) == (2, 4, 9)
    assert torch.float32 == problem.dlse.dtype
    assert problem.key_lengths.tolist() == [11, 4]
    assert torch.int32 == problem.key_lengths.dtype


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("do", ["dense", "expanded", "transposed", "zero"])
def test_values_inside_the_lengths_are_the_same_under_every_poison_and_storage(dtype, do):
    case = dataclasses.replace(BASE, dtype=dtype, grad=Grad(do=do, dlse=True))
    expected, _ = materialize(case)
    for storage in STORAGES:
        if storage.expand:
            continue
        for poison in POISONS:
            problem, _ = materialize(dataclasses.replace(case, storage=storage), padding=poison)
            for name in NAMES:
                for left, right in zip(
                    inside(name, getattr(expected, name)), inside(name, getattr(problem, name)), strict=True
                ):
                    word = torch.int32 if name == "dlse" else BITS[dtype]
                    assert torch.equal(left.contiguous().view(word), right.contiguous().view(word)), (
                        name,
                        storage,
                        poison,
                    )


def holds(tensor, poison):
    largest = torch.finfo(tensor.dtype).max
    return {
        "zero": (tensor == 0).all(),
        "dirt": (tensor != 0).any() & (tensor.abs() < 4).all(),
        "max": (tensor == largest).all(),
        "inf": (tensor == torch.inf).all(),
        "-inf": (tensor == -torch.inf).all(),
        "nan": tensor.isnan().all(),
    }[poison]


def before(tensor):
    """The guard band in front of a tensor."""
    return tensor.as_strided((GUARD,), (1,), tensor.storage_offset() - GUARD)


def gaps(tensor, entry, head):
    """The three elements behind each row of a head."""
    first = tensor[entry, head]
    return first.as_strided((first.shape[0], 3), (first.stride(0), 1), first.storage_offset() + first.shape[1])


@pytest.mark.parametrize("poison", PLAIN_POISONS)
def test_what_lies_outside_the_lengths_holds_the_poison(poison):
    problem, _ = materialize(dataclasses.replace(BASE, storage=Storage(gap=3)), padding=poison)

    for name in NAMES:
        tensor = getattr(problem, name)
        assert holds(tensor[1, :, 5:], poison), name
        if name != "dlse":
            assert all(holds(gaps(tensor, 1, head), poison) for head in range(tensor.shape[1])), name
        assert holds(before(tensor), poison), name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_with_mixed_poisons_each_head_has_its_own_in_its_rows_and_gaps(layout):
    case = dataclasses.replace(BASE, storage=Storage(layout=layout, gap=3), values=Values(seed=4))
    problem, _ = materialize(case, padding="mixed")

    for name in NAMES:
        tensor = getattr(problem, name)
        heads = tensor.shape[1]
        assert holds(before(tensor), PLAIN_POISONS[4])
        for entry, head in itertools.product(range(2), range(heads)):
            poison = PLAIN_POISONS[(4 + 1 + entry * heads + head) % 6]
            if name != "dlse":
                assert holds(gaps(tensor, entry, head), poison), name
            assert entry == 0 or holds(tensor[1, head, 5:], poison), name


def test_the_heads_of_a_page_and_one_head_for_all_have_mixed_poisons_too():
    paged = parse_case(
        "fv1 batch=2 heads_q=4 heads_kv=4 seq_k=20 klen=20,3 page_size=16 padding=mixed seed=1 backward=no"
    )
    pool = materialize(paged)[0].pages.k
    unused = pool[[p for p in range(pool.shape[0]) if not (pool[p].isfinite().all() and (pool[p] != 0).any())]]
    expanded = materialize(dataclasses.replace(BASE, storage=Storage(expand=True)), padding="mixed")[0].k

    assert any(len({str(unused[n, 0, head, 0].item()) for head in range(4)}) > 2 for n in range(len(unused)))
    assert holds(expanded[1, :, 5:], PLAIN_POISONS[2])


def test_an_expanded_gradient_is_one_element():
    problem, _ = materialize(dataclasses.replace(BASE, seq_q=1, mask=Mask(), grad=Grad(do="expanded")))

    assert problem.do.stride() == (0, 0, 0, 0)
    assert problem.do.unique().numel() == 1


def test_a_transposed_gradient_has_no_contiguous_last_axis():
    problem, _ = materialize(dataclasses.replace(BASE, grad=Grad(do="transposed")))

    assert problem.do.stride(2) == 1
    assert problem.do.stride(3) == 9


def test_expanded_heads_are_one():
    problem, _ = materialize(dataclasses.replace(BASE, storage=Storage(expand=True)))

    assert 0 == problem.k.stride(1) == problem.v.stride(1)
    assert torch.equal(problem.k[0, 0], problem.k[0, 1])


@pytest.mark.parametrize("axes", [{"batch": 0}, {"seq_q": 0}, {"seq_k": 0}])
def test_empty_tensors_are_guarded_too(axes):
    case = dataclasses.replace(
        BASE, mask=Mask(), **axes, storage=Storage(layout="bshd", gap=1), grad=Grad(do="expanded", dlse=True)
    )
    problem, arena = materialize(case)

    assert case.shape_q == tuple(problem.q.shape)
    assert arena.damage() == []


def test_a_forward_alone_has_no_gradients():
    problem, _ = materialize(dataclasses.replace(BASE, mask=Mask(), grad=Grad(backward=False, dlse=True)))

    assert problem.do is None
    assert problem.dlse is None
    assert problem.key_lengths is None


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("name", NAMES)
def test_damage_is_found_wherever_it_is(name, poison):
    case = dataclasses.replace(BASE, storage=Storage(gap=3, offset=1))

    def after(change):
        problem, arena = materialize(case, padding=poison)
        assert arena.damage() == []
        change(getattr(problem, name))
        return [(d.tensor, d.kind, d.index) for d in arena.damage()]

    def near(tensor, distance):
        return tensor.as_strided((1,), (1,), tensor.storage_offset() + distance)

    element = (1, 1, 2, 3)[: 3 if name == "dlse" else 4]
    assert [(name, "input", element)] == after(lambda t: t[element].fill_(7.0))
    assert [(name, "guard", (-1,))] == after(lambda t: near(t, -1).fill_(7.0))
    assert [(name, "guard", (-GUARD,))] == after(lambda t: near(t, -GUARD).fill_(7.0))
    if name != "dlse":
        width = BASE.dim_v if name in ("v", "do") else BASE.dim_qk
        assert [(name, "guard", (width + 1,))] == after(lambda t: near(t, width + 1).fill_(7.0))


def test_damage_says_what_happened():
    problem, arena = materialize(BASE)
    problem.k[0, 1, 2, 3] = 7
    problem.k[0, 1, 2, 4] = 8
    (damage,) = arena.damage()

    assert damage.message == "k[0, 1, 2, 3] was overwritten with 7.0 (2 elements changed)"


def test_a_change_of_a_nan_payload_or_of_a_zeros_sign_is_damage():
    problem, arena = materialize(dataclasses.replace(BASE, values=Values(regime="zeros")), padding="nan")
    problem.q[0, 0, 0, 0] = -0.0

    assert [d.kind for d in arena.damage()] == ["input"]


def test_unknown_padding_is_refused():
    with pytest.raises(UsageError, match="padding='one' is not accepted"):
        materialize(BASE, padding="one")


def test_a_small_case_is_made_in_milliseconds():
    case = Case(heads_q=2, heads_kv=2, seq_q=48, seq_k=48, dim_qk=32, dim_v=32)
    best = float("inf")
    for seed in range(30):
        start = time.perf_counter()
        _, arena = materialize(dataclasses.replace(case, values=Values(seed=seed)))
        arena.damage()
        best = min(best, time.perf_counter() - start)

    assert best < 0.005


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("gap", [0, 3])
def test_the_last_axis_of_a_transposed_case_is_not_contiguous_and_holds_the_same_values(layout, gap):
    plain, turned = (
        materialize(dataclasses.replace(BASE, storage=Storage(layout=layout, gap=gap, transposed=transposed)))[0]
        for transposed in (False, True)
    )

    for name in ("q", "k", "v"):
        mine = getattr(turned, name)
        assert mine.stride(-1) > 1
        for expected, got in zip(inside(name, getattr(plain, name)), inside(name, mine), strict=True):
            assert torch.equal(expected, got)
    assert turned.do.stride(-1) == 1


def test_only_subjects_that_take_it_are_given_a_last_axis_that_is_not_contiguous():
    case = parse_case("fv1 transposed=yes")

    assert Supports().refusal(case) == "transposed=yes"
    assert Supports(transposed=True).refusal(case) is None
    assert Supports(transposed=True, contiguous=True).refusal(case) == "transposed=yes"
    drawn = draw(cases(Supports(transposed=True)), 60, 0)
    assert 4 <= sum(each.storage.transposed for each in drawn) <= 30
    with pytest.raises(UsageError, match="transposed='yes' is not accepted: no where k and v come in pages"):
        Storage(transposed=True, page_size=16)


@pytest.mark.parametrize("padding", ["dirt", "mixed"])
@pytest.mark.parametrize(
    "storage", [Storage(), Storage(layout="bshd", offset=8), Storage(gap=3), Storage(strided=True)], ids=str
)
def test_what_lies_around_values_is_that_of_a_buffer_without_values(padding, storage):
    case = dataclasses.replace(BASE, mask=Mask(), dtype="bf16", storage=dataclasses.replace(storage, padding=padding))
    _, arena = materialize(case)
    for buffer in arena._buffers:
        held, dtype = buffer.raw.numpy(), "fp32" if buffer.name == "dlse" else "bf16"
        empty = poisoned(buffer.placement.size, dtype, padding, case.values.seed, buffer.name).view(held.dtype)
        begin, end = buffer.placement.start, buffer.placement.start + buffer.placement.extent
        assert (held[:begin] == empty[:begin]).all()
        assert (held[end:] == empty[end:]).all()
        between = held[begin:end][np.setdiff1d(np.arange(begin, end), buffer.placement.places()) - begin]
        assert buffer.placement.dense == (between.size == 0)
        if padding == "dirt":
            assert (between == empty[np.setdiff1d(np.arange(begin, end), buffer.placement.places())]).all()
