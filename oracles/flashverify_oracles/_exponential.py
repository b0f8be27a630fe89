"""The exponential of scores, of which those of hidden keys are -inf."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

_GONE = -746.0
"""e^x rounds to 0 from here on down."""
_NORMAL = -700.0
"""e^x is a normal number from here on up."""
_BETWEEN = math.exp(_NORMAL - 0.5)


def exp_(x: Tensor) -> Tensor:
    """e^x in place of float64 `x`, the same bits as `x.exp_()`.

    On a CPU torch is slow where a power rounds to 0. If every power is either normal or 0, the arguments of zeros are raised to one
    below `_NORMAL`, and what comes of them is set to 0.
    """
    if not x.is_cuda:
        scores = x.numpy()
        low = np.count_nonzero(scores <= _NORMAL)
        if low and low == np.count_nonzero(scores < _GONE):
            return torch.threshold_(x.clamp_(min=_NORMAL - 1.0).exp_(), _BETWEEN, 0.0)
    return x.exp_()
