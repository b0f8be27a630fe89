"""Ratios error / (bound + self-error) of an emulated kernel, in both modes, against the float64 oracle."""

import math

import torch
from torch import Tensor

from flashverify.numerics import Form, OutputBound, Problem, backward_bounds, forward_bounds
from flashverify_oracles import float64


def worst(x: Tensor, ref: Tensor, bound: OutputBound) -> float:
    """Largest ratio of an output; infinite when a value is not finite although it must be."""
    x = x.double()
    assert not bool(bound.bound.isnan().any())
    assert bool((bound.bound >= 0).all())
    signed_inf = torch.isinf(x) & ((x > 0) == (ref > 0))
    accepted = bound.exempt | (bound.may_overflow & signed_inf) | (x == ref)
    refused = bound.must_overflow & ~signed_inf & ~bound.exempt
    error = torch.where(accepted, 0.0, (x - ref).abs())
    ratio = torch.where(accepted, 0.0, error / bound.total)
    ratio = torch.where(refused | ratio.isnan(), math.inf, ratio)
    return float(ratio.max()) if ratio.numel() else 0.0


def measure(kernel, q, k, v, do, *, scale, vis=None, dlse=None, form=None, dtype=None) -> dict[str, float]:  # type: ignore[no-untyped-def]
    """Run a kernel (an object with `forward` and `backward`) and return its worst ratios; conditional ones end in `|`."""
    pairs = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool) if vis is None else vis
    truth = float64.forward(q, k, v, scale=scale, visible=vis)
    grads = float64.backward(q, k, v, do, scale=scale, visible=vis, forward=truth, dlse=dlse)
    problem = Problem.of(q, k, v, scale=scale, dtype=dtype or q.dtype, visible=vis, form=form or Form())
    F = forward_bounds(problem, truth.o, truth.lse)
    same = {"do": do, "dlse": dlse}
    E = backward_bounds(problem, o=truth.o, lse=truth.lse, dq=grads.dq, dk=grads.dk, dv=grads.dv, forward=F, **same)
    o, lse, kept = kernel.forward(q, k, v, pairs)
    delta, dq, dk, dv = kernel.backward(q, k, v, do, o, kept, pairs, dlse)
    ratios = {"o": worst(o, truth.o, F.o), "lse": worst(lse, truth.lse, F.lse)}
    for name, x in (("delta", delta), ("dq", dq), ("dk", dk), ("dv", dv)):
        ratios[name] = worst(x, getattr(grads, name), getattr(E, name))
    given = float64.backward(q, k, v, do, scale=scale, visible=vis, forward=truth, dlse=dlse, given_o=o, given_lse=lse)
    C = backward_bounds(problem, o=o, lse=lse, dq=given.dq, dk=given.dk, dv=given.dv, **same)
    for name, x in (("delta", delta), ("dq", dq), ("dk", dk), ("dv", dv)):
        ratios[name + "|"] = worst(x, getattr(given, name), getattr(C, name))
    exempt = sum(float(x.exempt.double().sum()) for x in (F.o, F.lse, E.dq, E.dk, E.dv))
    vague = sum(float(x.uninformative.double().sum()) for x in (F.o, F.lse, E.dq, E.dk, E.dv))
    size = max(1, sum(x.bound.numel() for x in (F.o, F.lse, E.dq, E.dk, E.dv)))
    return ratios | {"exempt": exempt / size, "vague": vague / size}
