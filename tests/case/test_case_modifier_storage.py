"""Where biases, sinks, slopes and pages lie: strides, padding, damage, pages in another order."""

import dataclasses

import pytest
import torch

from flashverify.case import POISONS, Storage, parse_case
from flashverify.case.memory.arena import GUARD
from flashverify.case.memory.materialize import materialize
from flashverify.case.memory.poisons import plain_poison
from tests.case.modifier_cases import FIELDS, PACKED, SHAPE, tensors


def bits(tensor):
    return tensor.contiguous().view({1: torch.int8, 2: torch.int16, 4: torch.int32}[tensor.itemsize])


@pytest.mark.parametrize("padding", ["nan", "max"])
def test_strided_vectors_have_padding_between_their_elements(padding):
    text = "batch=2 heads_q=3 heads_kv=1 seq_q=5 seq_k=4 alibi=yes sink=yes dlse=yes"
    dense, strided = (
        materialize(parse_case(f"fv1 {text} {more}"), padding=padding)[0] for more in ("", "strided=yes gap=3")
    )

    for name, strides in (("slopes", (2,)), ("sink", (2,)), ("dlse", (30, 10, 2))):
        tensor = getattr(strided, name)
        assert strides == tensor.stride()
        assert torch.equal(tensor, getattr(dense, name))
        between = tensor.as_strided((tensor.numel(),), (2,), tensor.storage_offset() + 1)
        assert (between.isnan() if padding == "nan" else between == torch.finfo(torch.float32).max).all()


@pytest.mark.parametrize(
    ("kind", "shape"), [("full", (2, 4, 9, 11)), ("head", (1, 4, 9, 11)), ("shared", (1, 1, 9, 11))]
)
def test_the_bias_is_a_strided_view(kind, shape):
    case = parse_case(
        f"fv1 batch=2 heads_q=4 heads_kv=2 seq_q=9 seq_k=11 bias={kind} layout=bshd gap=3 offset=1 dtype=bf16"
    )
    bias = materialize(case)[0].bias

    assert shape == tuple(bias.shape)
    assert torch.bfloat16 == bias.dtype
    assert (9 * shape[1] * 14, 14, shape[1] * 14, 1) == bias.stride()
    assert bias.data_ptr() % 16 == 2


@pytest.mark.parametrize("text", ["klen=11,4 qlen=9,5 batch=2", "packed=0,3,7/0,2,8", "qlen=6"])
def test_a_bias_outside_the_lengths_is_padding(text):
    for kind in ("full", "head", "shared"):
        case = parse_case(f"fv1 heads_q=2 seq_q=9 seq_k=11 bias={kind} {text}")
        clean, poisoned = (materialize(case, padding=p)[0].bias for p in ("zero", "nan"))
        for b in range(clean.shape[0]):
            rows, keys = case.rows_inside or (9,), case.keys_inside or (11,)
            row = rows[b] if len(rows) == clean.shape[0] else max(rows)
            key = keys[b] if len(keys) == clean.shape[0] else max(keys)
            assert torch.equal(clean[b, :, :row, :key], poisoned[b, :, :row, :key])
            assert poisoned[b, :, row:].isnan().all()
            assert poisoned[b, :, :, key:].isnan().all()


def test_what_lies_behind_the_last_packed_sequence_is_padding():
    problem, _ = materialize(parse_case(f"fv1 {PACKED} dlse=yes"), padding="nan")

    for name, last in (("q", 17), ("k", 33), ("v", 33), ("do", 17), ("dlse", 17)):
        tensor = getattr(problem, name)
        assert tensor[:, :, last:].isnan().all()
        assert not tensor[:, :, :last].isnan().any()
    assert problem.cu_q.tolist() == [0, 5, 5, 17]
    assert problem.cu_k.tolist() == [0, 9, 20, 33]
    assert (problem.max_q, problem.max_k) == (12, 13)


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("storage", ["", "layout=bshd gap=3 offset=1", "expand=yes"])
@pytest.mark.parametrize("size", [1, 5, 16, 64])
def test_pages_hold_the_keys_in_another_order(size, storage, poison):
    case = parse_case(
        f"fv1 batch=3 heads_q=4 heads_kv=2 seq_k=37 klen=37,0,17 page_size={size} seed=4 dim_v=8 {storage}"
    )
    problem, arena = materialize(case, padding=poison)
    pages, entries = problem.pages, problem.pages.table.tolist()
    assert torch.int32 == pages.table.dtype
    assert (3, -(-37 // size)) == tuple(pages.table.shape)
    used = []
    for b, length in enumerate((37, 0, 17)):
        count = -(-length // size)
        used += entries[b][:count]
        beyond = entries[b][count:]
        garbage = plain_poison(poison, 4)
        assert all(e == 0 if garbage == "zero" else e == -1 if garbage == "-inf" else e >= 2**20 for e in beyond)
        for j in range(length):
            page, slot = entries[b][j // size], j % size
            assert torch.equal(bits(pages.k[page, slot]), bits(problem.k[b, :, j]))
            assert torch.equal(bits(pages.v[page, slot]), bits(problem.v[b, :, j]))
        if poison == "nan" and length % size:
            assert pages.k[entries[b][count - 1], length % size :].isnan().all()
    assert len(used) == len(set(used)) < pages.k.shape[0]
    assert size == 64 or used != sorted(used)
    free = [p for p in range(pages.k.shape[0]) if p not in used]
    assert poison != "nan" or pages.v[free].isnan().all()
    assert arena.damage() == []


def test_damage_of_every_optional_tensor_is_found():
    texts = (
        f"{SHAPE} klen=37,9 qlen=3,19 bias=full bitmap=128,1,1 blocks=4,4,128,1 alibi=yes sink=yes relative_bias=4,3 page_size=16",
        f"{PACKED} bias=head",
    )
    met = set()
    for text in texts:
        case = parse_case(f"fv1 {text}")
        for name in tensors(materialize(case)[0]):
            problem, arena = materialize(case, padding="nan")
            tensor = tensors(problem)[name]
            index = (0,) * tensor.dim()
            if tensor.dtype == torch.bool:
                tensor[index] = ~tensor[index]
            else:
                tensor[index] = 7
            before = tensor.as_strided((1,), (1,), tensor.storage_offset() - GUARD)
            before.fill_(False if tensor.dtype == torch.bool else 7)
            found = {(d.tensor, d.kind, d.index) for d in arena.damage()}
            assert {(name, "input", index), (name, "guard", (-GUARD,))} == found
            met.add(name)
    assert set(FIELDS) <= met


def test_optional_tensors_do_not_depend_on_padding_or_storage():
    case = parse_case(f"fv1 {SHAPE} bias=full bitmap=128,1 blocks=4,4,128,1 alibi=yes sink=yes page_size=16")
    expected = tensors(materialize(case)[0])
    for storage in (Storage(page_size=16, padding="nan"), Storage(layout="bshd", gap=3, offset=1, page_size=16)):
        other = tensors(materialize(dataclasses.replace(case, storage=storage))[0])
        for name in (n for n in expected if not n.startswith("pages")):
            assert torch.equal(bits(expected[name]), bits(other[name])), name
