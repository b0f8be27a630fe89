"""Host launchers: check, allocate, launch. The layer below autograd, where forward and backward can be called apart."""

import contextlib
from typing import Any

import torch

from flashverify_kernels import hopper
from flashverify_kernels.arguments import constants, in_order, records, sequences_of, sizes_of, statistics, views
from flashverify_kernels.device.delta import delta_kernel
from flashverify_kernels.device.dkdv import dkdv_kernel
from flashverify_kernels.device.dq import dq_kernel
from flashverify_kernels.device.forward import forward_kernel
from flashverify_kernels.options import Options
from flashverify_kernels.plans import launched, planned
from flashverify_kernels.programs import programs_of
from flashverify_kernels.reductions import bias_gradient, row_positions, sink_gradient, table_gradient
from flashverify_kernels.results import BackwardResult, ForwardResult
from flashverify_kernels.runtime import compute_capability
from flashverify_kernels.tiles import tiles
from flashverify_kernels.validation import CheckedCall, axes, check_call, check_like

DELTA_ROWS = 64
"""Rows per program of the delta kernel."""
_MAX_PROGRAMS = 2**31 - 1


@planned(tensors=3)
def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    options: Options | None = None,
    *,
    dtype: torch.dtype | None = None,
) -> ForwardResult:
    """Compute O and the base-2 LSE.

    Args:
        q: `[B, Hq, Sq, D]`, or the axes in the order of `options.layout`.
        k: `[B, Hkv, Sk, D]`.
        v: `[B, Hkv, Sk, Dv]`.
        options: see `attention`.
        dtype: of O; that of q by default, fp32 for a part that is merged.

    Raises:
        TypeError: an argument of the wrong type or dtype.
        ValueError: a shape, stride, device or value that is not accepted.
    """
    options = options or Options()
    call = check_call(q, k, v, options, capability=compute_capability(q), dtype=dtype)
    o = _empty(call, options, q, call.heads, call.rows, call.dv, dtype)
    lse2 = _statistic(call, q)
    tensors = in_order(options, q=q, k=k, v=v, o=o)
    if hopper.takes(call, options, "forward", tensors):
        with torch.cuda.device(q.device):
            hopper.forward(call, options, tensors, lse2)()
        return ForwardResult(o, lse2)
    _launch(
        forward_kernel,
        programs_of(call, call.heads, call.sq, call.rows, call.configs["forward"].block_m),
        q,
        **views(tensors),
        stats=statistics(call, lse2=lse2),
        **records(call, options, "forward"),
        **tiles(call, options, "forward", tensors),
        **constants(call, "forward", tensors),
        enable_fp_fusion=False,  # see `online_step`
    )
    return ForwardResult(o, lse2)


@planned(tensors=6)
def backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse2: torch.Tensor,
    options: Options | None = None,
    *,
    dlse: torch.Tensor | None = None,
    needs: tuple[bool, ...] = (True,) * 6,
    dtype: torch.dtype | None = None,
) -> BackwardResult:
    """Compute the gradients of q, k, v and, where there are any, of the bias, the sinks and the relative bias.

    Args:
        do: gradient of o, any strides.
        q: as in `forward`.
        k: as in `forward`.
        v: as in `forward`.
        o: output of `forward`.
        lse2: LSE of `forward`, log base 2, `[B, Hq, Sq]` fp32.
        options: those of `forward`.
        dlse: gradient of the natural LSE, `[B, Hq, Sq]` fp32, any strides, or None.
        needs: whether dq, dk, dv, dbias, dsink and drelative_bias are wanted.
        dtype: of dq, dk and dv; that of q by default, fp32 for parts that are added.

    Raises:
        TypeError: an argument of the wrong type or dtype.
        ValueError: a shape, stride, device or value that is not accepted.
    """
    options = options or Options()
    call = check_call(q, k, v, options, capability=compute_capability(q), dtype=dtype)
    rows = (call.batch, call.heads, call.rows)
    outputs = tuple((*rows, call.dv)[a] for a in axes(options.layout))
    check_like("do", do, q, outputs, q.dtype)
    check_like("o", o, q, outputs, q.dtype)
    check_like("lse2", lse2, q, rows, torch.float32)
    if dlse is not None:
        check_like("dlse", dlse, q, rows, torch.float32)
        dlse = dlse.contiguous()
    lse2 = lse2.contiguous()
    do = do if do.stride(3) == 1 else do.contiguous()
    o = o if o.stride(3) == 1 else o.contiguous()

    sequences = sequences_of(options)
    delta = _statistic(call, q)
    tensors = in_order(options, o=o, do=do)
    shared = constants(call, "dq", tensors)
    _launch(
        delta_kernel,
        programs_of(call, call.heads, call.sq, call.rows, DELTA_ROWS),
        q,
        **views(tensors),
        stats=statistics(call, lse2=lse2, delta=delta, dlse=dlse),
        sequences=sequences._replace(cu_k=None, k_lengths=None),  # which would be part of its compile key
        sizes=sizes_of(call),
        BLOCK_M=DELTA_ROWS,
        **{name: shared[name] for name in ("BLOCK_DV", "EVEN_DV", "ALIGNED")},
    )

    stats = statistics(call, lse2=lse2, delta=delta)
    bias, sink, relative = call.terms.bias, call.terms.sink, options.relative_bias
    dq = dk = dv = ds = None
    if (bias is not None and needs[3]) or (relative is not None and needs[5]):
        ds = torch.zeros(*rows, call.sk, dtype=torch.float32, device=q.device)  # tiles never visited stay 0
    if needs[0] or ds is not None:
        dq = _empty(call, options, q, call.heads, call.rows, call.d, dtype)
        tensors = in_order(options, q=q, k=k, v=v, do=do, dq=dq)
        if ds is None and hopper.takes(call, options, "dq", tensors):
            with torch.cuda.device(q.device):
                hopper.dq(call, options, tensors, lse2, delta)()
        else:
            _launch(
                dq_kernel,
                programs_of(call, call.heads, call.sq, call.rows, call.configs["dq"].block_m),
                q,
                **views(tensors),
                ds_ptr=ds,
                stats=stats,
                **records(call, options, "dq"),
                **tiles(call, options, "dq", tensors),
                **constants(call, "dq", tensors),
            )
    if needs[1] or needs[2]:
        dk = _empty(call, options, q, call.kv_heads, call.keys, call.d, dtype)
        dv = _empty(call, options, q, call.kv_heads, call.keys, call.dv, dtype)
        tensors = in_order(options, q=q, k=k, v=v, do=do, dk=dk, dv=dv)
        if hopper.takes(call, options, "dkdv", tensors):
            with torch.cuda.device(q.device):
                hopper.dkdv(call, options, tensors, lse2, delta)()
        else:
            _launch(
                dkdv_kernel,
                programs_of(call, call.kv_heads, call.sk, call.keys, call.configs["dkdv"].block_n),
                q,
                **views(tensors),
                stats=stats,
                **records(call, options, "dkdv"),
                **tiles(call, options, "dkdv", tensors),
                **constants(call, "dkdv", tensors),
            )
    return BackwardResult(
        dq if needs[0] else None,
        dk if needs[1] else None,
        dv if needs[2] else None,
        delta,
        None if bias is None or ds is None or not needs[3] else bias_gradient(ds, bias),
        None if sink is None or not needs[4] else sink_gradient(sink, lse2, delta, sequences.cu_q),
        None
        if relative is None or ds is None or not needs[5]
        else table_gradient(ds, row_positions(ds, options), relative),
    )


def _launch(kernel: Any, programs: int, q: torch.Tensor, **arguments: Any) -> None:
    """Launch one program per index of axis 0, the only grid axis without a limit of 65,535."""
    if programs > _MAX_PROGRAMS:
        raise ValueError(f"q: {programs} tiles are more than one launch can take ({_MAX_PROGRAMS})")
    if programs:
        with torch.cuda.device(q.device) if q.is_cuda else contextlib.nullcontext():
            launched(kernel, programs, **arguments)


def _statistic(call: CheckedCall, q: torch.Tensor) -> torch.Tensor:
    """One of `statistics`, without a content: rows of all heads one after the other, whatever strides the caller's tensors have."""
    rows = [call.batch * call.heads * call.rows]
    return torch.empty(rows, dtype=torch.float32, device=q.device).view(call.batch, call.heads, call.rows)


def _empty(
    call: CheckedCall,
    options: Options,
    q: torch.Tensor,
    heads: int,
    length: int,
    dim: int,
    dtype: torch.dtype | None,
) -> torch.Tensor:
    shape = (call.batch, heads, length, dim)
    return torch.empty([shape[a] for a in axes(options.layout)], dtype=dtype or q.dtype, device=q.device)
