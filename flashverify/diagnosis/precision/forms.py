"""A wider numerical form under which failing outputs would be within their bounds."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.expected import of_bound
from flashverify.diagnosis.references import backward_asked, forward_asked
from flashverify.outputs import BACKWARD, FORWARD
from flashverify.truth import Truth

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.diagnosis.clock import End
    from flashverify.diagnosis.observation import Scene
    from flashverify.numerics import Form

Change = dict[str, Any]
"""Fields of a form, by name."""

__all__ = ["Change", "broken_prediction", "changes_text", "declaring", "form_text", "wider_form", "worst_beside_bounds"]

_MOST_IN_PAIRS = 8
_TILES = (16, 32, 64, 128, 256)
_OF_THE_CASE: dict[str, tuple[Change, ...]] = {
    "summed": ({"row_sum": "rounded"},),
    "p_of_ds": ({"ds_from": "p_rounded"},),
    "p_normalised": ({"normalise": "before_cast"},),
    "centred_k": ({"k_smoothed": True},),
    "product": ({"s_dtype": "input"},),
    "logit": ({"s_dtype": "input"},),
    "dp": ({"dp_dtype": "input"},),
    "member": ({"gqa_partial": "input"},),
    "ds_summed": ({"dbias_partial": "input"},),
    "scaled_q_in_base_2": (
        {"prescale_fwd": "q"},
        {"prescale_bwd": "q"},
        {"prescale_fwd": "q", "prescale_bwd": "q"},
        {"prescale_bwd": "q", "grad_uses_prescaled": True},
        {"prescale_fwd": "q", "prescale_bwd": "q", "grad_uses_prescaled": True},
    ),
}
"""By the step that is rounded to the dtype of the case, the changes of a form that declare it."""
_OF_ANY: dict[str, tuple[Change, ...]] = {
    "accumulator": (
        {"o_accum": "{}"},
        {"grad_accum": "{}", "grad_accum_of": "dq"},
        {"grad_accum": "{}", "grad_accum_of": "dkv"},
        {"grad_accum": "{}", "grad_accum_of": "all"},
    ),
    "part_o": ({"partial_dtype": "{}"},),
    "o": ({"out_dtype": "{}"},),
    "gradient": ({"grad_dtype": "{}"},),
}
"""The same of steps whose dtype a form says, which stands for `{}`."""
_OF_FP16: dict[str, tuple[Change, ...]] = {"tanh": ({"softcap": "approx"},)}
_ROUNDED = "rounded to "


_REACH = {
    "fwd": frozenset(FORWARD),
    "bwd": frozenset(BACKWARD),
    "o_accum": frozenset({"o"}),
    "dq": frozenset({"dq"}),
    "dkv": frozenset({"dk", "dv"}),
    "all": frozenset({"dq", "dk", "dv"}),
}
"""By a part of a field's name, or by its value, the outputs of which one must be wrong for the change to be a declaration of it."""


def declaring(step: str, how: str, dtype: str, names: frozenset[str]) -> tuple[Change, ...]:
    """The changes of a form that declare a step that is rounded.

    Args:
        step: the `step` of a model.
        how: what is done to it, by its words.
        dtype: of the case.
        names: of the outputs that the model explains.
    """
    return tuple(change for change in _declaring(step, how, dtype) if _concerns(change, names))


def _concerns(change: Change, names: frozenset[str]) -> bool:
    texts = {text for name, value in change.items() for text in (name, name.rpartition("_")[2], value)}
    return all(bool(_REACH[text] & names) for text in texts if text in _REACH)


def _declaring(step: str, how: str, dtype: str) -> tuple[Change, ...]:
    if step == "dots":
        return ({"dot": "tf32x3"}, {"dot": "tf32"})
    if step == "exp":
        return ({"exp": "poly"},)
    found = _OF_THE_CASE.get(step, ()) if how == _ROUNDED + dtype else ()
    found += _OF_FP16.get(step, ()) if how == _ROUNDED + "fp16" else ()
    if how.startswith(_ROUNDED):
        text = how.removeprefix(_ROUNDED)
        found += tuple(
            {name: text if value == "{}" else value for name, value in change.items()}
            for change in _OF_ANY.get(step, ())
        )
    return found


def form_text(form: Form) -> str:
    """The form as Python text, without the defaults."""
    declared = ", ".join(f"{name}={value!r}" for name, value in form.describe()["declared"].items())
    return f"Form({declared})"


def changes_text(form: Form, declared: Form) -> str:
    """What a form has that the declared one has not, as Python text."""
    fields = (field.name for field in dataclasses.fields(form))
    changed = (name for name in fields if getattr(form, name) != getattr(declared, name))
    return f"Form({', '.join(f'{name}={getattr(form, name)!r}' for name in changed)})"


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


def wider_form(scenes: list[Scene], changes: Iterable[Change], deadline: End) -> Form | None:
    """The first form, with one change or two of the declared one, under which the outputs of every scene are within bounds.

    Args:
        scenes: of one subject.
        changes: those that may be made.
        deadline: after which None is returned.
    """
    form, useful = scenes[0].form, []
    for change in changes:
        other = _widened(form, change)
        if deadline.over:
            return None
        if other is None:
            continue
        if all(within(scene, other) == 0 for scene in scenes):
            return other
        useful.append(change)
    for one, two in itertools.combinations(useful[:_MOST_IN_PAIRS], 2):
        if one.keys() & two.keys() or deadline.over:
            continue
        other = _widened(form, one | two)
        if other is not None and all(within(scene, other) == 0 for scene in scenes):
            return other
    return None


def broken_prediction(scenes: list[Scene]) -> tuple[list[Form], str] | None:
    """The other widths of tiles that make strict failures vanish, and what to say; None where something else fails."""
    form = scenes[0].form
    if form.key_order != "ascending" or any(within(scene, form, strict=False) for scene in scenes):
        return None
    others = [dataclasses.replace(form, block_n=size) for size in _TILES if size != form.block_n]
    fits = [other for other in others if all(within(scene, other) == 0 for scene in scenes)]
    declared = f"block_n={form.block_n}"
    if fits:
        widths = " or ".join(str(other.block_n) for other in fits)
        return fits, f"the declared width of tiles, {declared}, may be what is wrong: {widths} would fit"
    return [], (
        f"only the prediction from tiles of {declared} keys in ascending order fails: the declared width or order of tiles "
        "may be what is wrong, or a rounding in the forward"
    )
