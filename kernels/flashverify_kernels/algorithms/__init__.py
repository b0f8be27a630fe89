"""Attention as the literature first wrote it down, for counting and comparing; contiguous tensors, plain loops, no tuning.

For Triton's interpreter: on a GPU nothing would order what a program stores before what it loads again in `paper`.

| module | algorithm |
|---|---|
| `standard` | S and P in memory; backward with dP and dS in memory |
| `paper` | FlashAttention with keys outside; O, l, m (backward: dQ) in memory, normalised after every block; dense, block-sparse or over packed sequences, with dropout |
| `two_pass` | the normalisation first, then O: two passes over the keys |
| `rabe_staats` | O, l, m of every block of keys in memory, combined at the end |
| `two_pass_backward` | a pass over the keys for dQ, a pass over the queries for dK and dV |
"""

from flashverify_kernels.algorithms.launch import paper_backward, paper_forward, two_pass_backward, two_pass_forward
from flashverify_kernels.algorithms.launch_rabe_staats import rabe_staats_forward
from flashverify_kernels.algorithms.launch_standard import standard_backward, standard_forward
from flashverify_kernels.algorithms.setting import Forward, LiveBlocks, Setting

__all__ = [
    "Forward",
    "LiveBlocks",
    "Setting",
    "paper_backward",
    "paper_forward",
    "rabe_staats_forward",
    "standard_backward",
    "standard_forward",
    "two_pass_backward",
    "two_pass_forward",
]
