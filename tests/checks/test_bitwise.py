"""Two passes compared bit by bit, on a CPU and with tensors that say they lie on a GPU."""

import math

import pytest
import torch

from flashverify.checks.passes import bitwise
from flashverify.checks.passes.bitwise import first_differences


@pytest.fixture(params=["cpu", "cuda"])
def device(request, monkeypatch):
    if request.param == "cuda":
        monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    return request.param


def pair(dtype=torch.float32, **changed):
    a = torch.tensor([[1.0, 0.0, math.nan], [2.0, -3.0, math.inf]], dtype=dtype)
    b = a.clone()
    for place, value in changed.items():
        b.view(-1)[int(place[1:])] = value
    return a, b, None


def test_zeros_of_either_sign_and_every_nan_are_equal(device):
    other_nan = torch.tensor(0x7FC00001, dtype=torch.int32).view(torch.float32)
    assert first_differences([pair(), pair(_1=-0.0), pair(_2=other_nan)]) == [None, None, None]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_first_difference_of_each_pair_is_told(device, dtype):
    found = first_differences([pair(dtype), pair(dtype, _3=2.5), pair(dtype, _2=0.0, _5=1.0)])
    assert found[0] is None
    assert found[1] == ((1, 0), "2 against 2.5, 1 of 6 elements differ")
    assert found[2] == ((0, 2), "nan against 0, 2 of 6 elements differ")


def test_elements_of_which_nothing_is_asked_are_not_compared(device):
    a, b, _ = pair(_3=2.5)
    assert first_differences([(a, b, torch.tensor([[False], [True]]))]) == [None]


def test_passes_of_a_gpu_with_equal_bits_are_compared_in_one_operation_each(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(bitwise, "_different", None)
    assert first_differences([pair(), pair(torch.float16)]) == [None, None]
