"""Host functions of the standard algorithm; tensors are `[B, H, S, D]` with any strides, outputs contiguous."""

import math

import torch

from flashverify_kernels.algorithms.setting import Forward, Gradients, Setting, Shapes, keeps_all, launch, padded
from flashverify_kernels.algorithms.standard import (
    product_kernel,
    score_gradient_kernel,
    scores_kernel,
    softmax_kernel,
    weight_gradient_kernel,
)


def standard_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, setting: Setting) -> Forward:
    """Algorithm 0: S in fp32 and P in the dtype of q, both in memory."""
    keeps_all(setting)
    shapes = Shapes(q, v, setting)
    s, p = shapes.square(q, torch.float32), shapes.square(q, q.dtype)
    lse2 = shapes.rows(-math.inf, q)
    o = torch.empty(*q.shape[:3], shapes.dv, dtype=q.dtype, device=q.device)
    rows = shapes.matrices * shapes.tiles_m
    launch(scores_kernel, rows * shapes.tiles_n, q_ptr=q, k_ptr=k, s_ptr=s, **shapes.common)
    launch(
        softmax_kernel,
        rows,
        s_ptr=s,
        p_ptr=p,
        lse2_ptr=lse2,
        sq=shapes.sq,
        sk=shapes.sk,
        **shapes.mask,
        **shapes.whole_rows,
    )
    _product(p, v, o, 1.0, shapes, transposed=False)
    return Forward(o, lse2 * math.log(2), (p,))


def standard_backward(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, forward: Forward, setting: Setting
) -> Gradients:
    """Algorithm 3: (dQ, dK, dV); dP in fp32 and dS in the dtype of q, both in memory. A group's dK and dV are summed in fp32."""
    keeps_all(setting)
    shapes = Shapes(q, v, setting)
    (p,) = forward.kept
    dp, ds = shapes.square(q, torch.float32), shapes.square(q, q.dtype)
    dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    dk, dv = shapes.of_query_heads(k), shapes.of_query_heads(v)
    rows = shapes.matrices * shapes.tiles_m
    sizes = {"sq": shapes.sq, "sk": shapes.sk}
    _product(p, do, dv, 1.0, shapes, transposed=True)
    launch(
        weight_gradient_kernel,
        rows * shapes.tiles_n,
        do_ptr=do,
        v_ptr=v,
        dp_ptr=dp,
        lengths_ptr=setting.key_lengths,
        heads=shapes.heads,
        group=shapes.group,
        **sizes,
        **shapes.values,
        **shapes.blocks,
    )
    launch(score_gradient_kernel, rows, p_ptr=p, dp_ptr=dp, ds_ptr=ds, **shapes.mask, **sizes, **shapes.whole_rows)
    _product(ds, k, dq, setting.scale, shapes, transposed=False)
    _product(ds, q, dk, setting.scale, shapes, transposed=True)
    return dq, shapes.of_groups(dk, k.dtype), shapes.of_groups(dv, v.dtype)


def _product(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: float, shapes: Shapes, *, transposed: bool
) -> None:
    """C = scale A B, or scale A^T B."""
    rows, depth = c.shape[2], b.shape[2]
    block = shapes.blocks["BLOCK_N" if transposed else "BLOCK_M"]
    launch(
        product_kernel,
        shapes.matrices * -(-rows // block),
        a_ptr=a,
        b_ptr=b,
        c_ptr=c,
        lengths_ptr=None if transposed else shapes.common["lengths_ptr"],
        scale=scale,
        heads=shapes.heads,
        group_b=1 if transposed else shapes.group,
        rows=rows,
        depth=depth,
        width=c.shape[3],
        BLOCK_M=block,
        BLOCK_N=shapes.blocks["BLOCK_M" if transposed else "BLOCK_N"],
        BLOCK_W=padded(c.shape[3]),
        TRANSPOSED=transposed,
    )
