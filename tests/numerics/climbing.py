"""Hill climbing against every bound: values, and the directions of errors, that bring an emulated kernel of a drawn form close to its bound."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flashverify.numerics import Form
from tests.numerics.formed import DTYPES
from tests.numerics.formed_backward import FormedKernel
from tests.numerics.ratios import measure
from tests.numerics.regimes import REGIMES, draw

# What is drawn of each field; the first value is the most frequent one.
FIELDS: dict[str, tuple[Any, ...]] = {
    "exp": ("ex2", "ex2", "exp", "poly"),
    "prescale_fwd": ("none", "none", "q", "k"),
    "prescale_bwd": ("none", "none", "q", "k"),
    "ds_from": ("p_fp32", "p_rounded"),
    "scale_ds": ("after", "operand", "before"),
    "row_sum": ("unrounded", "unrounded", "rounded"),
    "bwd_lse_base": ("2", "2", "e"),
    "normalise": ("end", "end", "every_block", "lse"),
    "s_dtype": ("fp32", "fp32", "fp32", "input"),
    "pv_dtype": ("fp32", "fp32", "fp32", "input"),
    "dp_dtype": ("fp32", "fp32", "fp32", "input"),
    "o_accum": ("fp32", "fp32", "fp32", "bf16"),
    "dp_init": ("zero", "zero", "minus_delta"),
    "delta_from": ("o", "o", "o_fp32", "p"),
    "partial_dtype": ("fp32", "input"),
    "grad_accum": ("fp32", "fp32", "bf16", "fp16"),
    "grad_accum_of": ("dq", "dkv", "all"),
    "gqa_partial": ("fp32", "input"),
    "dbias_partial": ("fp32", "input"),
    "max_source": ("exponent", "exponent", "apart"),
    "rescale_threshold": (0.0, 0.0, 0.0, 8.0),
    "n_splits": (1, 1, 3),
    "block_n": (16, 32),
    "dot": ("ieee", "tf32", "tf32x3"),
    "architecture": ("ieee", "ieee", "sm_80", "sm_90"),
    "key_order": ("unknown", "ascending"),
}
STRETCHES = (0.0, -1.0, 0.5, 2.0, 8.0, 0.125)


@dataclass(kw_only=True)
class State:
    """What the search changes."""

    tensors: tuple[Tensor, ...]
    lean: int
    seed: int


@dataclass(kw_only=True)
class Climb:
    """One form and one problem; all of it follows from a number.

    Attributes:
        form: What the kernel declares, and is.
        dtype: Of its tensors.
        worst: The largest ratio of each output so far; conditional ones end in `|`, strict ones in `!`.
        evaluations: Kernels run.
    """

    number: int
    fixed: dict[str, Any]
    form: Form
    dtype: torch.dtype
    worst: dict[str, float]
    evaluations: int = 0


def plausible(form: dict[str, Any], dtype: str) -> dict[str, Any]:
    """The drawn fields without combinations that no kernel has, or that the emulated one does not play."""
    if form["partial_dtype"] == "input":
        form["partial_dtype"] = dtype
    if form["n_splits"] == 1:
        form["partial_dtype"] = "fp32"
    else:
        form["normalise"] = "end"
    if form["normalise"] == "every_block":
        form |= {"o_accum": "fp32", "pv_dtype": "fp32"}
    if form["s_dtype"] == "input":
        form |= {"prescale_fwd": "none", "prescale_bwd": "none", "max_source": "exponent"}
    if dtype == "fp32":
        form |= {"s_dtype": "fp32", "pv_dtype": "fp32", "dp_dtype": "fp32"}
        if form["dot"] != "ieee" and form["architecture"] == "ieee":
            form["architecture"] = "sm_80"
    else:
        form["dot"] = "ieee"
    if form["architecture"] != "ieee":
        form["scale_ds"] = "after" if form["scale_ds"] == "operand" and dtype != "fp32" else form["scale_ds"]
    natural = form["exp"] == "exp"
    if natural:
        form["bwd_lse_base"] = "2"
    form |= {"gap_c": 3.0 if natural else 1.0, "kappa": 2.0, "kappa_bias": 2.0, "p_from": "lse"}
    return form


def start(number: int, fixed: dict[str, Any]) -> tuple[Climb, State, dict[str, Any]]:
    """The form, the first values and what else the problem has."""
    r, gen = random.Random(f"start {number}"), torch.Generator().manual_seed(number)
    dtype = str(fixed.get("dtype") or r.choice(list(DTYPES)))
    drawn = {name: r.choice(values) for name, values in FIELDS.items()}
    drawn |= {name: value for name, value in fixed.items() if name in FIELDS}
    form = Form(**plausible(drawn, dtype))
    Hkv, group = r.choice([1, 2]), r.choice([1, 1, 2, 3])
    Sq, Sk = r.choice([1, 5, 18, 33]), r.choice([1, 8, 20, 20, 40, 40])
    D, Dv = r.choice([8, 16, 64, 128]), r.choice([8, 16, 128])
    D, Dv = fixed.get("dim", D), fixed.get("dim", Dv)
    if form.architecture != "ieee":  # the matrix unit is emulated product by product
        Sq, Sk = min(Sq, 8), min(Sk, 20)
    Hq = Hkv * group
    tensors = draw(r.choice(REGIMES), DTYPES[dtype], (1, Hq, Hkv, Sq, Sk, D, Dv), number)
    scale = r.choice([D**-0.5] * 4 + [1.0, -0.3, 2.0**-130, 0.0])
    vis = None if r.random() < 0.5 else torch.rand(Sq, Sk, generator=gen) < 0.7
    features: dict[str, Any] = {}
    if r.random() < 0.3:
        features["biases"] = ((torch.randn(1, r.choice([1, Hq]), Sq, Sk, generator=gen) * 2).to(DTYPES[dtype]),)
    if r.random() < 0.3 and form.n_splits == 1:
        features["sink"] = torch.randn(Hq, generator=gen).float()
    dlse = torch.randn(1, Hq, Sq, generator=gen) if r.random() < 0.3 else None
    asked = {"scale": scale, "vis": vis, "dlse": dlse, "features": features}
    asked["bias_shape"] = tuple(features["biases"][0].shape) if "biases" in features else None
    state = State(tensors=tensors, lean=r.choice([-1, 0, 1]), seed=number)
    return Climb(number=number, fixed=fixed, form=form, dtype=DTYPES[dtype], worst={}), state, asked


def neighbour(state: State, r: random.Random, gen: torch.Generator) -> State:
    """A state with one of its parts changed."""
    if r.random() < 0.15:
        return State(tensors=state.tensors, lean=r.choice([-1, 0, 1]), seed=r.randrange(1 << 30))
    which = r.randrange(4)
    x = state.tensors[which].double()
    largest = torch.finfo(state.tensors[which].dtype).max
    share = r.choice([0.02, 0.2, 1.0])
    here = torch.rand(x.shape, generator=gen) < share
    match r.randrange(5):
        case 0:
            changed = x * r.choice(STRETCHES)
        case 1:
            changed = x + torch.randn(x.shape, generator=gen, dtype=torch.float64) * x.abs().mean()
        case 2:  # another row in its place
            changed = x.roll(r.randrange(max(x.shape[2], 1)), 2)
        case 3:
            changed = x.abs() if r.random() < 0.5 else x.sign() * x.abs().mean()
        case _:  # powers of two and their neighbours, near which casts err the most
            changed = torch.exp2(x.abs().clamp(min=1e-30).log2().round()) * x.sign() * (1 + r.choice([-1, 1]) * 2.0**-9)
    moved = torch.where(here, changed, x).clamp(-largest, largest).to(state.tensors[which].dtype)
    tensors = tuple(moved if n == which else old for n, old in enumerate(state.tensors))
    return State(tensors=tensors, lean=state.lean, seed=state.seed)


def evaluate(climb: Climb, state: State, asked: dict[str, Any]) -> dict[str, float]:
    """The ratios of one kernel."""
    features = asked["features"]
    bias = features["biases"][0] if "biases" in features else None
    kernel = FormedKernel(
        form=climb.form, dtype=climb.dtype, scale=asked["scale"], lean=state.lean, seed=state.seed, bias=bias,
        sink=features.get("sink"),
    )  # fmt: skip
    ratios = measure(kernel, *state.tensors, form=climb.form, **asked)
    climb.evaluations += 1
    found = {name: value for name, value in ratios.items() if name not in ("exempt", "vague")}
    for name, value in found.items():
        climb.worst[name] = max(climb.worst.get(name, 0.0), value)
    return found


def climb(number: int, evaluations: int, **fixed: Any) -> Climb:
    """Climbs from the state of a number towards the bound of one output.

    Args:
        number: Everything that is drawn follows from it.
        evaluations: Kernels to run.
        fixed: Fields of the form, `dtype` and `dim` that are not drawn.
    """
    found, state, asked = start(number, fixed)
    r, gen = random.Random(f"climb {number}"), torch.Generator().manual_seed(number + 1)
    best = evaluate(found, state, asked)
    aim = r.choice(sorted(best))
    while found.evaluations < evaluations and all(x <= 1 for x in found.worst.values()):
        other = neighbour(state, r, gen)
        ratios = evaluate(found, other, asked)
        if ratios.get(aim, -math.inf) >= best.get(aim, 0.0):
            state, best = other, ratios
    return found
