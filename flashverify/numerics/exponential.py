"""The exponential of many float64 numbers, some of them far below 0."""

import math

import numpy as np
import torch
from torch import Tensor

__all__ = ["exp_"]

# e^x rounds to 0 below -745.14, and is a normal number above -708.39.
_ZERO, _NORMAL = -746.0, -700.0
_RAISED, _BETWEEN = _NORMAL - 1.0, math.exp(_NORMAL - 0.5)


def exp_(x: Tensor) -> Tensor:
    """e^x in place of `x`, the very bits of `x.exp_()`.

    On a CPU torch takes some thirty times as long for an argument whose power is 0, which every masked pair has. Where no power is
    subnormal these arguments are raised, and their powers set to 0. Further operations would cost a GPU more than they save.
    """
    if x.is_cuda:
        return x.exp_()
    given = x.numpy()
    low = np.count_nonzero(given <= _NORMAL)
    if not low or low != np.count_nonzero(given < _ZERO):
        return x.exp_()
    return torch.threshold_(x.clamp_(min=_RAISED).exp_(), _BETWEEN, 0.0)
