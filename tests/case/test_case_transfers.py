"""Answers about several tensors at once."""

from __future__ import annotations

import pytest
import torch

from flashverify.case.memory.transfers import any_of, to_device


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
