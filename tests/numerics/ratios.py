"""Ratios error / (bound + self-error) of an emulated kernel, in both modes, against the float64 oracle."""

import math

import torch
from torch import Tensor

from flashverify.numerics import BoundInputs, Form, OutputBound, backward_bounds, forward_bounds
from flashverify_oracles import float64


def worst(x: Tensor, ref: Tensor, bound: OutputBound) -> float:
    """Largest ratio of an output; infinite when a value is not finite although it must be."""
    x = x.double()
    assert not bool(bound.bound.isnan().any())
    assert bool((bound.bound >= 0).all())
    signed_inf = torch.isinf(x) & ((x > 0) == (ref > 0))
    accepted = bound.exempt | (bound.may_overflow & signed_inf) | (bound.may_flip & torch.isinf(x)) | (x == ref)
    refused = bound.must_overflow & ~signed_inf & ~bound.exempt
    error = torch.where(accepted, 0.0, (x - ref).abs())
    ratio = torch.where(accepted, 0.0, error / bound.total)
    ratio = torch.where(refused | ratio.isnan(), math.inf, ratio)
    return float(ratio.max()) if ratio.numel() else 0.0


def measure(  # type: ignore[no-untyped-def]
    kernel, q, k, v, do, *, scale, vis=None, dlse=None, form=None, dtype=None, features=None, bias_shape=None
) -> dict[str, float]:
    """Run a kernel (an object with `forward` and `backward`) and return its worst ratios; conditional ones end in `|`, strict ones in `!`.

    `features` are softcap, biases, sink, keep and dropout as oracle and bounds take them; a kernel that has them returns dS and dSink too.
    """
    features = features or {}
    pairs = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool) if vis is None else vis
    asked = {"scale": scale, "visible": vis, **features}
    backward = {**asked, "dlse": dlse, "bias_shape": bias_shape}
    truth = float64.forward(q, k, v, **asked)
    grads = float64.backward(q, k, v, do, forward=truth, **backward)
    problem = BoundInputs.of(q, k, v, dtype=dtype or q.dtype, form=form or Form(), **asked)
    F = forward_bounds(problem, truth.o, truth.lse)
    same = {"do": do, "dlse": dlse}

    def values(g):  # type: ignore[no-untyped-def]
        return {name: getattr(g, name) for name in ("dq", "dk", "dv", "dbias", "dsink")}

    E = backward_bounds(problem, o=truth.o, lse=truth.lse, forward=F, **values(grads), **same)
    o, lse, kept = kernel.forward(q, k, v, pairs)
    found = dict(
        zip(
            ("delta", "dq", "dk", "dv", "ds", "dsink"), kernel.backward(q, k, v, do, o, kept, pairs, dlse), strict=False
        )
    )
    if bias_shape is not None:
        found["dbias"] = kernel.dbias(found["ds"], bias_shape)
    ratios = {"o": worst(o, truth.o, F.o), "lse": worst(lse, truth.lse, F.lse)}
    found = {name: x for name, x in found.items() if getattr(E, name, None) is not None}
    for name, x in found.items():
        ratios[name] = worst(x, getattr(grads, name), getattr(E, name))
    form = problem.form
    stored = frozenset({"o"} if form.delta_from != "p" else ()) | frozenset({"lse"} if form.p_from != "forward" else ())
    factor = (truth.lse - lse.double()).nan_to_num(0.0, 0.0, 0.0).exp().unsqueeze(-1)
    read_o = o if "o" in stored else truth.o * (factor if "lse" in stored else 1.0)
    read_lse = lse if "lse" in stored else truth.lse
    given = float64.backward(q, k, v, do, forward=truth, given_o=read_o, given_lse=read_lse, **backward)
    rest = {"forward": None if len(stored) == 2 else F, "stored": stored}
    C = backward_bounds(problem, o=read_o, lse=read_lse, **values(given), **same, **rest)
    for name, x in found.items():
        ratios[name + "|"] = worst(x, getattr(given, name), getattr(C, name))
    for name, x, strict in (("o", o, F.strict), ("dv", found["dv"], C.strict)):
        if strict is not None:
            ratios[name + "!"] = worst(x, strict.value, strict.bound)
    exempt = sum(float(x.exempt.double().sum()) for x in (F.o, F.lse, E.dq, E.dk, E.dv))
    vague = sum(float(x.uninformative.double().sum()) for x in (F.o, F.lse, E.dq, E.dk, E.dv))
    size = max(1, sum(x.bound.numel() for x in (F.o, F.lse, E.dq, E.dk, E.dv)))
    return ratios | {"exempt": exempt / size, "vague": vague / size}
