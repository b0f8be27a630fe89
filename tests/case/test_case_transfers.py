"""Answers about several tensors at once."""

from __future__ import annotations

import pytest
import torch

from flashverify.case.memory.host import on_cpu
from flashverify.case.memory.materialize import materialize
from flashverify.case.memory.transfers import any_of, to_device, to_host
from flashverify.case.text import parse_case


def test_each_mask_has_its_own_answer():
    masks = [torch.zeros(3, dtype=torch.bool), torch.tensor([[False, True]]), torch.zeros(0, dtype=torch.bool)]
    assert any_of(masks) == [False, True, False]
    assert any_of([]) == []


class OnGpu:
    """A mask that says it is on a GPU, which must not be asked by itself: each question is a wait."""

    is_cuda = True

    def __init__(self, value, device, size=1):
        self.value, self.device, self.size = value, device, size

    def numel(self):
        return self.size

    def reshape(self, *shape):
        return self

    def any(self):
        return self

    def __bool__(self):
        raise AssertionError("a wait of its own")


@pytest.fixture
def waits(monkeypatch):
    """The devices that were waited for: for all masks together, and for each mask."""
    together, apart = [], []

    def answers(found):
        def of(masks):
            found.append({mask.device for mask in masks})
            return torch.tensor([mask.value for mask in masks])

        return of

    monkeypatch.setattr(torch, "cat", answers(together))
    monkeypatch.setattr(torch, "stack", answers(apart))
    return together, apart


@pytest.mark.parametrize("values", [(False, True, False, True), (True, False, False, False), (False,) * 4])
def test_masks_of_two_gpus_have_their_own_answers_with_few_waits_for_each(values, waits):
    masks = [OnGpu(value, f"cuda:{number % 2}") for number, value in enumerate(values)]
    true = {mask.device for mask in masks if mask.value}

    assert any_of(masks) == list(values)
    assert sorted(map(sorted, waits[0])) == [["cuda:0"], ["cuda:1"]]
    assert sorted(map(sorted, waits[1])) == [[device] for device in sorted(true)]


def test_large_masks_are_not_put_together(waits):
    masks = [OnGpu(value, "cuda:0", 1 << 24) for value in (False, True)]

    assert any_of(masks) == [False, True]
    assert waits == ([], [{"cuda:0"}])


def test_a_tensor_of_the_host_stays_there():
    tensor = torch.arange(3)
    assert to_device(tensor, "cpu") is tensor


def of_all_kinds():
    """Tensors of every dtype that a problem or an output has, contiguous, permuted, with gaps, expanded, empty, of no axis."""
    draw = torch.Generator().manual_seed(3)
    found = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.uint8, torch.bool, torch.float64):
        x = (torch.rand(3, 4, 5, 6, generator=draw) * 100).to(dtype)
        found += [x, x.transpose(1, 2), x.permute(2, 0, 3, 1), x[..., :3], x[:, :, ::2], x[:1].expand(3, 4, 5, 6)]
        found += [x[:0], x[0, 0, 0, 0], x[1:, 2:]]
    return found


def test_tensors_that_come_in_one_copy_are_those_that_come_alone(monkeypatch):
    tensors = of_all_kinds()
    expected = [x.clone() for x in tensors]  # which keeps strides as `cpu` does
    copies = []
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: copies.append(self.numel()) or self.clone())
    found = to_host(tensors)
    monkeypatch.undo()

    assert len(copies) == 1 + sum(x.numel() == 0 for x in tensors)
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        assert torch.equal(one, other)


def test_tensors_of_the_host_stay_what_they_are():
    tensors = of_all_kinds()
    assert all(one is other for one, other in zip(to_host(tensors), tensors, strict=True))


@pytest.mark.parametrize("text", ["fv1 seq_k=20 klen=7 dlse=yes", "fv1 seq_k=20 page_size=16 kv=shared backward=no"])
def test_a_problem_comes_to_the_host_in_one_copy_with_everything_in_its_place(text, monkeypatch):
    problem, _ = materialize(parse_case(text))
    output, copies = torch.ones(2, 3), []
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: copies.append(1) or self.clone())
    moved, also = on_cpu((problem, output))
    monkeypatch.undo()

    assert len(copies) == 1
    assert torch.equal(also, output)
    assert moved.case is problem.case
    for one, other in zip(moved.tensors(), problem.tensors(), strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one.nan_to_num(0.5), other.nan_to_num(0.5))
