"""Answers about several tensors at once."""

from __future__ import annotations

import torch

from flashverify.case.memory.transfers import any_of, to_device


def test_each_mask_has_its_own_answer():
    masks = [torch.zeros(3, dtype=torch.bool), torch.tensor([[False, True]]), torch.zeros(0, dtype=torch.bool)]
    assert any_of(masks) == [False, True, False]
    assert any_of([]) == []


def test_a_tensor_of_the_host_stays_there():
    tensor = torch.arange(3)
    assert to_device(tensor, "cpu") is tensor
