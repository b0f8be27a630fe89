"""Numerical forms from the plainest up, and which of their fields loosen a bound by more than the roundings of fp32."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["HARMLESS", "declared_by", "loosening", "rungs", "words_of"]

_CHOICES: tuple[dict[str, Any], ...] = (
    {"bwd_lse_base": "e"},
    {"max_source": "apart"},
    {"scale_ds": "operand"},
    {"scale_ds": "before"},
    {"normalise": "every_block"},
    {"normalise": "lse"},
    {"normalise": "lse_weights"},
    {"dp_init": "minus_delta"},
    {"delta_from": "p", "p_from": "forward"},
    {"delta_from": "p", "p_from": "lse"},
)
"""Where a kernel that keeps to fp32 may put its roundings, the usual ones first."""

_LOOSER: tuple[dict[str, Any], ...] = (
    {"row_sum": "rounded"},
    {"ds_from": "p_rounded"},
    {"prescale_fwd": "q"},
    {"prescale_fwd": "k"},
    {"prescale_bwd": "q"},
    {"prescale_bwd": "k"},
    {"prescale_bwd": "q", "grad_uses_prescaled": True},
    {"prescale_bwd": "k", "grad_uses_prescaled": True},
    {"gap_c": 16.0},
    {"kappa": 16.0},
    {"kappa_bias": 16.0},
    {"exp": "poly", "exp_eps": 40.0},
    {"exp": "poly"},
    {"exp": "poly", "exp_eps": 2000.0},
    {"dot": "tf32x3"},
    {"dot": "tf32"},
    {"normalise": "before_cast"},
    {"s_dtype": "input"},
    {"pv_dtype": "input"},
    {"dp_dtype": "input"},
    {"s_dtype": "input", "dp_dtype": "input", "normalise": "before_cast", "ds_from": "p_rounded", "scale_ds": "before"}
    | {"delta_from": "p", "p_from": "forward"},
    {"k_smoothed": True},
    {"o_accum": "{}"},
    {"gqa_partial": "input"},
    {"grad_accum": "{}", "grad_accum_of": "dq"},
    {"grad_accum": "{}", "grad_accum_of": "dkv"},
    {"grad_accum": "{}", "grad_accum_of": "all"},
    {"partial_dtype": "{}"},
    {"out_dtype": "{}"},
    {"grad_dtype": "{}"},
)
"""What rounds more than fp32 does, the usual ones first; `{}` stands for a 16-bit dtype."""

_WORDS = {
    "row_sum": "the row sum adds rounded weights",
    "ds_from": "dS is made of the rounded P",
    "prescale_fwd": "the forward multiplies an operand by the scale and rounds it before the dot",
    "prescale_bwd": "the backward multiplies an operand by the scale and rounds it before the dot",
    "grad_uses_prescaled": "a gradient is made of the rounded, scaled operand",
    "exp": "the exponential is coarser than that of fp32",
    "gap_c": "the exponent of a weight has more than three roundings",
    "kappa": "a logit has more than four roundings",
    "kappa_bias": "a bias has more than four roundings before it is added",
    "dot": "fp32 operands of a dot are cut to tf32",
    "s_dtype": "S and its gradient are rounded to 16 bits",
    "pv_dtype": "the product P V of each tile is rounded to 16 bits",
    "dp_dtype": "dP is rounded to 16 bits",
    "o_accum": "O is accumulated in 16 bits",
    "k_smoothed": "the mean of K is subtracted and the difference rounded to 16 bits",
    "normalise": "weights are divided by their sum before they are rounded",
    "gqa_partial": "dK and dV of each query head are rounded before they are summed over the group",
    "grad_accum": "gradients are accumulated in 16 bits",
    "partial_dtype": "partial outputs are kept in 16 bits",
    "out_dtype": "O is rounded to a narrower dtype than that of the inputs",
    "grad_dtype": "gradients are rounded to a narrower dtype than that of the inputs",
}

_QUIET = frozenset({"exp_eps", "grad_accum_of"})
_HARMLESS = frozenset(name for choice in _CHOICES for name in choice) | {"lse_base", "stored_delta"}


def loosening(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those fields of a form that only its author may declare."""
    return {name: value for name, value in fields.items() if name not in _HARMLESS or value == "before_cast"}


def words_of(fields: Mapping[str, Any]) -> str:
    """What such fields say a kernel does."""
    return "; ".join(_WORDS.get(name, name) for name in fields if name not in _QUIET)


def declared_by(signatures: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Fields under which errors may be as they were seen: of outputs, each with the words of a model of `flashverify.diagnosis.precision`."""
    found: dict[str, Any] = {}
    accumulated: dict[str, set[str]] = {}
    for output, words in signatures:
        dtype = next((name for name in ("fp16", "bf16") if f"rounded to {name}" in words), "")
        if words.startswith("the accumulator, rounded") and output != "o":
            accumulated.setdefault(dtype, set()).add("dq" if output == "dq" else "dkv")
        elif words.startswith("the row sum of P rounded") or (
            words.startswith("P rounded") and words.endswith("for the row sum")
        ):
            found["row_sum"] = "rounded"
        elif words.startswith("Q times the scale rounded"):
            found["prescale_fwd" if output in ("o", "lse") else "prescale_bwd"] = "q"
    for dtype, outputs in accumulated.items():
        found |= {"grad_accum": dtype, "grad_accum_of": "all" if len(outputs) > 1 else next(iter(outputs))}
    return found


def rungs(dtype: str) -> Iterator[list[dict[str, Any]]]:
    """Changes of the default form for cases of a dtype, rung by rung.

    First none, then what loosens nothing, then what loosens, each alone before two together. All of a rung are as small as each other.
    """
    narrow = (dtype,) if dtype != "fp32" else ("fp16", "bf16")
    looser = [
        {name: text if value == "{}" else value for name, value in change.items()}
        for change in _LOOSER
        if dtype == "fp32" or "dot" not in change
        for text in (narrow if "{}" in change.values() else ("",))
    ]
    choices = list(_CHOICES)
    yield [{}]
    yield choices
    yield list(_pairs(choices, choices))
    yield looser
    yield list(_pairs(looser, choices))
    yield list(_pairs(looser, looser))


def _pairs(first: Any, second: Any) -> Iterator[dict[str, Any]]:
    both = itertools.combinations(first, 2) if first == second else itertools.product(first, second)
    for one, two in both:
        if not one.keys() & two.keys():
            yield one | two


HARMLESS = 1 + len(_CHOICES) + len(list(_pairs(list(_CHOICES), list(_CHOICES))))
"""Forms that loosen nothing: those that are tried first."""
