import dataclasses

import pytest
import torch

from flashverify.case import Case, Grad, Mask, Storage, guard_outputs
from flashverify.case.materialize import materialize

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
