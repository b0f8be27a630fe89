"""Host functions of the algorithms with tiles alone in fast memory; tensors are `[B, H, S, D]` with any strides, outputs contiguous."""

import math

import torch

from flashverify_kernels.algorithms.paper import paper_backward_kernel, paper_forward_kernel
from flashverify_kernels.algorithms.setting import Forward, Gradients, Setting, Shapes, keeps_all, launch, natural_lse
from flashverify_kernels.algorithms.two_pass import statistics_kernel, weighted_sum_kernel
from flashverify_kernels.algorithms.two_pass_backward import delta_kernel, key_gradient_kernel, query_gradient_kernel


def paper_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, setting: Setting) -> Forward:
    """Algorithm 2, and with a pattern of blocks Algorithm 5: O is kept in fp32 in memory and rounded once at the end."""
    shapes = Shapes(q, v, setting)
    o = torch.zeros(*q.shape[:3], shapes.dv, dtype=torch.float32, device=q.device)
    m, row_sum = shapes.rows(-math.inf, q), shapes.rows(0.0, q)
    launch(
        paper_forward_kernel,
        shapes.matrices,
        q_ptr=q,
        k_ptr=k,
        v_ptr=v,
        o_ptr=o,
        m_ptr=m,
        l_ptr=row_sum,
        **shapes.sequences,
        **shapes.pattern,
        **shapes.draws,
        **shapes.common,
        **shapes.values,
    )
    return Forward(o.to(q.dtype), natural_lse(m, row_sum), (m, row_sum))


def paper_backward(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, forward: Forward, setting: Setting
) -> Gradients:
    """Algorithm 4, by live blocks where there is a pattern: (dQ, dK, dV); dQ is kept in fp32 in memory and rounded once at the end."""
    shapes = Shapes(q, v, setting)
    m, row_sum = forward.kept
    dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    dk, dv = (torch.zeros(x.shape, dtype=x.dtype, device=x.device) for x in (k, v))
    launch(
        paper_backward_kernel,
        shapes.kv_matrices,
        q_ptr=q,
        k_ptr=k,
        v_ptr=v,
        o_ptr=forward.o,
        do_ptr=do,
        m_ptr=m,
        l_ptr=row_sum,
        dq_ptr=dq,
        dk_ptr=dk,
        dv_ptr=dv,
        scale=setting.scale,
        **shapes.sequences,
        **shapes.pattern,
        **shapes.draws,
        **shapes.common,
        **shapes.values,
    )
    return dq.to(q.dtype), dk, dv


def two_pass_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, setting: Setting) -> Forward:
    """Appendix B.1, with the maximum taken out."""
    keeps_all(setting)
    shapes = Shapes(q, v, setting)
    m, row_sum = shapes.rows(-math.inf, q), shapes.rows(0.0, q)
    o = torch.empty(*q.shape[:3], shapes.dv, dtype=q.dtype, device=q.device)
    programs = shapes.matrices * shapes.tiles_m
    statistics = {"m_ptr": m, "l_ptr": row_sum}
    launch(statistics_kernel, programs, q_ptr=q, k_ptr=k, **statistics, **shapes.common)
    launch(
        weighted_sum_kernel,
        programs,
        q_ptr=q,
        k_ptr=k,
        v_ptr=v,
        **statistics,
        o_ptr=o,
        **shapes.common,
        **shapes.values,
    )
    return Forward(o, natural_lse(m, row_sum), (m, row_sum))


def two_pass_backward(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, forward: Forward, setting: Setting
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Appendix B.2: (dQ, dK, dV, delta); delta first, `[B, H, Sq]` fp32, then two passes."""
    keeps_all(setting)
    shapes = Shapes(q, v, setting)
    m, row_sum = forward.kept
    delta = shapes.rows(0.0, q)
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    rows = {"BLOCK_M": setting.block_m, "sq": shapes.sq, **shapes.values}
    programs = shapes.matrices * shapes.tiles_m
    launch(delta_kernel, programs, o_ptr=forward.o, do_ptr=do, delta_ptr=delta, **rows)
    inputs = {"q_ptr": q, "k_ptr": k, "v_ptr": v, "do_ptr": do, "m_ptr": m, "l_ptr": row_sum, "delta_ptr": delta}
    shared = {"scale": setting.scale, **inputs, **shapes.common, **shapes.values}
    launch(query_gradient_kernel, programs, dq_ptr=dq, **shared)
    launch(key_gradient_kernel, shapes.batch * shapes.kv_heads * shapes.tiles_n, dk_ptr=dk, dv_ptr=dv, **shared)
    return dq, dk, dv, delta
