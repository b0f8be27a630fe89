"""Which gradients are wrong only because delta is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.trials import work
from flashverify.outputs import OF_DS, rows_reach

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

__all__ = ["follows_from_delta"]

_MADE_OF_DELTA = (*OF_DS, "dsink")


def follows_from_delta(subject: Subject, case: Case, output: str) -> bool:
    """Whether a gradient of `subject` on `case` is wrong, and right given the subject's own delta, which is wrong too.

    A row whose delta is not finite says nothing of what it reaches.

    Args:
        subject: the kernel under test.
        case: where it fails.
        output: the gradient.

    Raises:
        Exception: whatever the subject raises on `case`.
    """
    if output not in _MADE_OF_DELTA or work(case) > LARGEST:
        return False
    scene = look(subject, case)
    if scene is None or scene.inputs.do is None or not {output, "delta"} <= scene.failures.keys():
        return False
    got = scene.outputs["delta"]
    finite = torch.isfinite(got)
    shift = torch.where(finite, scene.right["delta"].value - got, 0.0)
    dlse = shift if scene.inputs.dlse is None else scene.inputs.dlse.double() + shift
    expected = scene.expect(Alternative(inputs=replace(scene.inputs, dlse=dlse)), frozenset({output})).get(output)
    if expected is None:
        return False
    free = rows_reach(~finite, scene.problem)[output].expand_as(scene.outputs[output])
    if output in scene.free:
        free = free | scene.free[output]
    return bool(expected.holds(scene.outputs[output], free).all())
