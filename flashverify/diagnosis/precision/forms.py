"""A wider numerical form under which failing outputs would be within their bounds."""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.expected import of_bound
from flashverify.diagnosis.references import backward_asked, forward_asked
from flashverify.truth import Truth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.diagnosis.observation import Scene
    from flashverify.numerics import Form

    Change = dict[str, Any]

__all__ = ["changes_text", "form_text", "other_order", "wider_form", "worst_beside_bounds"]

_MOST_IN_PAIRS = 8
_TILES = (16, 32, 64, 128, 256)
_SINGLES: tuple[Change, ...] = (
    {"row_sum": "rounded"},
    {"exp": "poly"},
    {"prescale_fwd": "q"},
    {"prescale_fwd": "k"},
    {"prescale_bwd": "q"},
    {"prescale_bwd": "k"},
    {"prescale_bwd": "q", "grad_uses_prescaled": True},
    {"prescale_bwd": "k", "grad_uses_prescaled": True},
    {"ds_from": "p_rounded"},
    {"scale_ds": "operand"},
    {"scale_ds": "before"},
    {"bwd_lse_base": "e"},
    {"max_source": "apart"},
    {"normalise": "every_block"},
    {"dp_init": "minus_delta"},
    {"kappa": 16.0},
    {"gap_c": 16.0},
    {"kappa_bias": 16.0},
    {"rescale_threshold": 8.0},
    {"dot": "tf32x3"},
    {"dot": "tf32"},
    {"softcap": "approx"},
    {"softcap_slope": "product"},
    {"dropout_scale": "input"},
    {"gqa_partial": "input"},
    {"dbias_partial": "input"},
    {"grad_accum": "{}", "grad_accum_of": "dq"},
    {"grad_accum": "{}", "grad_accum_of": "dkv"},
    {"grad_accum": "{}", "grad_accum_of": "all"},
    {"partial_dtype": "{}"},
    {"out_dtype": "{}"},
    {"grad_dtype": "{}"},
    {"normalise": "before_cast"},
    {"s_dtype": "input"},
    {"pv_dtype": "input"},
    {"dp_dtype": "input"},
    {"o_accum": "{}"},
    {"k_smoothed": True},
    {"normalise": "lse"},
    {"normalise": "lse_weights"},
    {"delta_from": "o_fp32"},
    {"delta_from": "p"},
    {"delta_from": "p", "p_from": "forward"},
)
"""Changes of a form, the usual ones first; `{}` stands for a 16-bit dtype."""


def form_text(form: Form) -> str:
    """The form as Python text, without the defaults."""
    declared = ", ".join(f"{name}={value!r}" for name, value in form.describe()["declared"].items())
    return f"Form({declared})"


def changes_text(form: Form, declared: Form) -> str:
    """What a form has that the declared one has not, as Python text."""
    fields = (field.name for field in dataclasses.fields(form))
    changed = (name for name in fields if getattr(form, name) != getattr(declared, name))
    return f"Form({', '.join(f'{name}={getattr(form, name)!r}' for name in changed)})"


def _changes(dtype: str, dots: bool) -> Iterator[Change]:
    narrow = (dtype,) if dtype != "fp32" else ("fp16", "bf16")
    for change in _SINGLES:
        if "dot" in change and not dots:
            continue
        texts = narrow if "{}" in change.values() else ("",)
        for text in texts:
            yield {name: text if value == "{}" else value for name, value in change.items()}


def _widened(form: Form, change: Change) -> Form | None:
    """The form with a change; None where it has it, or where the change contradicts it."""
    if all(getattr(form, name) == value for name, value in change.items()):
        return None
    try:
        return dataclasses.replace(form, **change)
    except ValueError:
        return None


def within(scene: Scene, form: Form, *, strict: bool = True) -> float:
    """The largest error beside its bound under another form, over all outputs; 0 where everything holds."""
    return max(worst_beside_bounds(scene, form, strict=strict).values(), default=0.0)


def worst_beside_bounds(
    scene: Scene, form: Form, *, strict: bool = True, all_elements: bool = False
) -> dict[str, float]:
    """Per output that is outside its bounds under another form, the largest error beside its bound, at least 1.

    Args:
        scene: a run of the subject.
        form: in place of its own.
        strict: what a declared order of tiles predicts must hold too.
        all_elements: outputs that are within their bounds are in the answer as well.
    """
    truth = Truth(scene.inputs, scene.case.dtype, form)
    asked = forward_asked(truth, scene.problem, scene.contract)
    if strict:
        empty = truth.empty_rows.unsqueeze(-1)
        for name, pair in truth.strict().items():
            bound = of_bound(*pair).pinned(empty, scene.contract.empty_row_o or 0.0)
            asked[name] = dataclasses.replace(asked[name], strict=bound)
    if scene.inputs.do is not None:
        o, lse = scene.o, scene.lse
        asked |= backward_asked(truth, scene.problem, o, None if lse is None else lse / scene.unit)
    worst: dict[str, float] = {}
    for name, expected in asked.items():
        if name not in scene.outputs:
            continue
        wrong = ~expected.holds(scene.outputs[name], scene.free.get(name))
        ratio = ((scene.outputs[name] - expected.value).abs() / expected.total).nan_to_num(1e300, 1e300, 1e300)
        if bool(wrong.any()):
            worst[name] = max(float(ratio[wrong].amax()), 1.0)
        elif all_elements and ratio.numel():
            idle = scene.outputs[name] == expected.value
            free = scene.free.get(name)
            worst[name] = float(torch.where(idle if free is None else idle | free, 0.0, ratio).amax())
    return worst


def wider_form(scenes: list[Scene], deadline: float, *, dots: bool) -> Form | None:
    """The first form, with one change or two of the declared one, under which the outputs of every scene are within bounds.

    Args:
        scenes: of one subject.
        deadline: of `time.monotonic()`, after which None is returned.
        dots: less precise dots of fp32 operands are tried too.
    """
    form, start = scenes[0].form, within(scenes[0], scenes[0].form)
    useful: list[tuple[float, Change]] = []
    for change in _changes(scenes[0].case.dtype, dots):
        other = _widened(form, change)
        if time.monotonic() > deadline:
            return None
        if other is None:
            continue
        left = within(scenes[0], other)
        if left == 0 and all(within(scene, other) == 0 for scene in scenes[1:]):
            return other
        if left < 0.9 * start:
            useful.append((left, change))
    useful.sort(key=lambda pair: pair[0])
    for (_, one), (_, two) in itertools.combinations(useful[:_MOST_IN_PAIRS], 2):
        if one.keys() & two.keys() or time.monotonic() > deadline:
            continue
        other = _widened(form, one | two)
        if other is not None and all(within(scene, other) == 0 for scene in scenes):
            return other
    return None


def other_order(scenes: list[Scene]) -> tuple[Form, str] | None:
    """What makes strict failures vanish: another width of tiles, or no promise of their order; with the words for it. None where they are none."""
    form = scenes[0].form
    if form.key_order != "ascending" or any(within(scene, form, strict=False) for scene in scenes):
        return None
    for size in _TILES:
        other = dataclasses.replace(form, block_n=size)
        if size != form.block_n and all(within(scene, other) == 0 for scene in scenes):
            return other, f"the declared width of tiles, block_n={form.block_n}, may be what is wrong: {size} would fit"
    other = dataclasses.replace(form, key_order="unknown")
    return other, (
        f"only the prediction from tiles of block_n={form.block_n} keys in ascending order fails: the declared width or order of tiles "
        "may be what is wrong, or P is not rounded as a cast rounds it"
    )
