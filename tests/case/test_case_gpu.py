import dataclasses

import pytest
import torch

from flashverify.case import Case, Grad, Mask, Storage, guard_outputs, parse_case
from flashverify.case.masks.predicate import visible
from flashverify.case.memory.materialize import materialize

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]

CASE = Case(
    batch=2,
    heads_q=4,
    heads_kv=2,
    seq_q=9,
    seq_k=11,
    mask=Mask(key_lengths=(11, 4)),
    storage=Storage(layout="bshd", gap=3, offset=8, padding="nan"),
    grad=Grad(dlse=True),
)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_a_case_has_the_same_bits_and_strides_on_both_devices(dtype):
    case = dataclasses.replace(CASE, dtype=dtype)
    (cpu, _), (gpu, _) = materialize(case), materialize(case, "cuda")

    for name in ("q", "k", "v", "do", "dlse"):
        left, right = getattr(cpu, name), getattr(gpu, name)
        word = torch.int32 if left.itemsize == 4 else torch.int16
        assert left.stride() == right.stride()
        assert torch.equal(left.contiguous().view(word), right.cpu().contiguous().view(word))
        assert right.data_ptr() % 16 == 0
    assert gpu.key_lengths.is_cuda


OPTIONAL = (
    "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=9 seq_k=40 klen=40,4 qlen=9,3 bitmap=99,1,1 blocks=16,16,99,1,1 bias=full alibi=yes "
    "sink=yes page_size=16 padding=nan layout=bshd gap=3",
    "fv1 heads_q=2 seq_q=9 seq_k=40 packed=0,5,8/0,20,33 bias=head padding=inf",
)


@pytest.mark.parametrize("text", OPTIONAL)
def test_optional_tensors_have_the_same_bits_on_both_devices(text):
    def tensors(problem):
        pages = {} if problem.pages is None else {name: getattr(problem.pages, name) for name in ("k", "v", "table")}
        fields = {f.name: getattr(problem, f.name) for f in dataclasses.fields(problem)}
        return {name: value for name, value in (fields | pages).items() if isinstance(value, torch.Tensor)}

    (cpu, _), (gpu, arena) = materialize(parse_case(text)), materialize(parse_case(text), "cuda")
    expected, found = tensors(cpu), tensors(gpu)

    assert expected.keys() == found.keys()
    assert arena.damage() == []
    for name, left in expected.items():
        word = {1: torch.int8, 2: torch.int16, 4: torch.int32}[left.itemsize]
        assert left.stride() == found[name].stride()
        assert torch.equal(left.contiguous().view(word), found[name].cpu().contiguous().view(word)), name
    see, see_gpu = visible(parse_case(text)), visible(parse_case(text), "cuda")
    assert torch.equal(see(slice(None), slice(None)), see_gpu(slice(None), slice(None)).cpu())


def test_damage_on_the_gpu_is_found():
    problem, arena = materialize(CASE, "cuda")
    assert arena.damage() == []
    problem.v[1, 0, 2, 3] = 7
    problem.q.as_strided((1,), (1,), problem.q.storage_offset() - 1).fill_(0)

    assert [(d.tensor, d.kind) for d in arena.damage()] == [("q", "guard"), ("v", "input")]


def test_allocations_on_the_gpu_are_guarded():
    with guard_outputs() as guard:
        tensor = torch.empty(3, 4, device="cuda", dtype=torch.bfloat16)
        zeros = torch.zeros(5, device="cuda")
    tensor[0] = 1

    assert tensor.data_ptr() % 256 == 0
    assert guard.unwritten(tensor).sum() == 8
    assert not guard.unwritten(zeros).any()
    assert guard.damage() == []
    tensor.as_strided((1,), (1,), tensor.storage_offset() + 12).fill_(0)
    assert [d.index for d in guard.damage()] == [(12,)]
