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
    """A flag that says it is on a GPU, which must not be asked by itself: each question is a wait."""

    is_cuda = True

    def __init__(self, value, device):
        self.value, self.device = value, device

    def any(self):
        return self

    def __bool__(self):
        raise AssertionError("a wait of its own")


@pytest.mark.parametrize("values", [(False, True, False, True), (True, False, False, False)])
def test_masks_of_two_gpus_have_their_own_answers_with_one_wait_for_each(values, monkeypatch):
    waits = []

    def stack(flags):
        waits.append({flag.device for flag in flags})
        return torch.tensor([flag.value for flag in flags])

    monkeypatch.setattr(torch, "stack", stack)
    masks = [OnGpu(value, f"cuda:{number % 2}") for number, value in enumerate(values)]

    assert any_of(masks) == list(values)
    assert sorted(map(sorted, waits)) == [["cuda:0"], ["cuda:1"]]


def test_a_tensor_of_the_host_stays_there():
    tensor = torch.arange(3)
    assert to_device(tensor, "cpu") is tensor
