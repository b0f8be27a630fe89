"""Attention as the literature first wrote it down, for counting and comparing; contiguous tensors, plain loops, no tuning.

For Triton's interpreter: on a GPU nothing would order what a program stores before what it loads again in `paper`.

| module | algorithm |
|---|---|
| `standard` | S and P in memory; backward with dP and dS in memory |
| `paper` | FlashAttention with keys outside; O, l, m (backward: dQ) in memory, normalised after every block |
| `two_pass` | the normalisation first, then O: two passes over the keys |
"""

from flashverify_kernels.algorithms.launch import (
    Forward,
    Setting,
    paper_backward,
    paper_forward,
    standard_backward,
    standard_forward,
    two_pass_forward,
)

__all__ = [
    "Forward",
    "Setting",
    "paper_backward",
    "paper_forward",
    "standard_backward",
    "standard_forward",
    "two_pass_forward",
]
