"""Host function of the forward of Rabe and Staats; tensors are `[B, H, S, D]` with any strides, outputs contiguous."""

import math

import torch

from flashverify_kernels.algorithms.rabe_staats import combination_kernel, summary_kernel
from flashverify_kernels.algorithms.setting import Forward, Setting, Shapes, keeps_all, launch


def rabe_staats_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, setting: Setting) -> Forward:
    """O of every block of keys `[blocks, B, H, Sq, Dv]` fp32, its maxima and its sums in memory (`kept`), then O of all."""
    keeps_all(setting)
    shapes = Shapes(q, v, setting)
    sizes = (shapes.tiles_n, *q.shape[:3])
    part_o = torch.empty(*sizes, shapes.dv, dtype=torch.float32, device=q.device)
    part_m, part_l = (torch.empty(sizes, dtype=torch.float32, device=q.device) for _ in range(2))
    parts = {"part_o_ptr": part_o, "part_m_ptr": part_m, "part_l_ptr": part_l, "matrices": shapes.matrices}
    lse2 = shapes.rows(-math.inf, q)
    o = torch.empty(*q.shape[:3], shapes.dv, dtype=q.dtype, device=q.device)
    rows = shapes.matrices * shapes.tiles_m
    launch(
        summary_kernel,
        rows * shapes.tiles_n,
        q_ptr=q,
        k_ptr=k,
        v_ptr=v,
        **parts,
        **shapes.common,
        **shapes.values,
    )
    launch(
        combination_kernel,
        rows,
        **parts,
        o_ptr=o,
        lse2_ptr=lse2,
        blocks=shapes.tiles_n,
        sq=shapes.sq,
        BLOCK_M=setting.block_m,
        **shapes.values,
    )
    return Forward(o, lse2 * math.log(2), (part_o, part_m, part_l))
