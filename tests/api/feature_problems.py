"""Inputs, sequences and masks of the tests of features."""

import torch

ROWS, KEYS = torch.arange(24).view(-1, 1), torch.arange(32).view(1, -1)


def inputs_of(p):
    return p.q, p.k, p.v


DENSE = torch.rand(1, 4, 24, 32, generator=torch.Generator().manual_seed(3)) < 0.6
CU_Q, CU_K = (0, 10, 10, 22), (0, 8, 12, 30)
