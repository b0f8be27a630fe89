"""A subject under conventions that are tried, in place of those that it declares."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from flashverify.case.masks.mask import PARTS
from flashverify.case.modifiers.logits import LOGIT_MODIFIERS
from flashverify.probing.returns import brought_back
from flashverify.subjects.function import FunctionSubject
from flashverify.subjects.interface import Contract, Forward, Gradients, Supports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form
    from flashverify.probing.answers import Returned
    from flashverify.probing.questions import Assumed
    from flashverify.subjects.interface import Subject

__all__ = ["View", "supports_of", "view_of"]

_WIDEST: dict[str, Any] = {
    "precisions": ("ieee", "tf32", "tf32x3"),
    "masks": tuple(part.name for part in PARTS if part.role != "alignment"),
    "window_alignments": ("top-left", "bottom-right"),
    "logits": tuple(modifier.name for modifier in LOGIT_MODIFIERS),
    "dropout": True,
    "block_multiple": 1,
    "page_sizes": tuple(2**n for n in range(9)),
    "empty": True,
    "dim_multiple": 1,
    "dim_max": 1 << 12,
    "scales": ("positive", "zero", "negative"),
    "dlse": True,
    "strided": True,
}


def supports_of(fields: Mapping[str, Any], declared: Supports) -> Supports:
    """`Supports` of these fields, as JSON has them; the widest one where there are none, with the declared launches."""
    found = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    launches = {"launch": declared.launch, "launch_configs": declared.launch_configs}
    return Supports(**(found or _WIDEST) | launches)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A class of its author as a subject of other conventions."""

    whole: Subject
    supports: Supports
    contract: Contract
    declared_form: Form
    returned: dict[str, Returned]

    @property
    def name(self) -> str:
        """That of the subject."""
        return self.whole.name

    def form(self, case: Case) -> Form:  # noqa: ARG002
        """The form that is tried."""
        return self.declared_form

    def device(self) -> str:
        """That of the subject."""
        return self.whole.device()

    def evidence(self) -> str:
        """That of the subject."""
        return self.whole.evidence()

    def forward(self, problem: Problem) -> Forward:
        """That of the subject."""
        found = self.whole.forward(problem)
        pairs = (("o", found.o), ("lse", found.lse))
        for name, tensor in pairs:
            if tensor is not None:
                self.returned[name] = brought_back(name, tensor, problem.case, tensor.dtype)[1]
        return found

    def backward(self, problem: Problem, forward: Forward) -> Gradients:
        """That of the subject."""
        return self.whole.backward(problem, forward)


def view_of(subject: Subject, assumed: Assumed) -> tuple[Subject, dict[str, Returned]]:
    """The subject under the conventions `assumed`, and a dict that says after each forward how O and the LSE came back.

    O and the LSE of a function are brought into the layout and dtype that the harness takes.
    """
    from flashverify.numerics.form import Form

    returned: dict[str, Returned] = {}
    supports = supports_of(assumed.supports, subject.supports)
    supports = dataclasses.replace(supports, contiguous=assumed.contiguous)
    contract = Contract(lse_base=None, gradients=frozenset(assumed.gradients), padding="undefined", reads_outputs=None)
    form = Form(**cast("dict[str, Any]", assumed.form | {"lse_base": assumed.lse_base}))
    if not isinstance(subject, FunctionSubject):
        view = View(whole=subject, supports=supports, contract=contract, declared_form=form, returned=returned)
        return view, returned
    function = subject.function

    def call(problem: Problem) -> Any:
        import torch

        result: Any = function(problem)
        if isinstance(result, dict):
            pairs = dict(result)
        else:
            o, lse = result if isinstance(result, tuple) else (result, None)
            pairs = {"o": o, "lse": lse}
        for name, tensor in pairs.items():
            if name in ("o", "lse") and isinstance(tensor, torch.Tensor):
                dtype = problem.q.dtype if name == "o" else torch.float32
                pairs[name], returned[name] = brought_back(name, tensor, problem.case, dtype)
        return {name: value for name, value in pairs.items() if value is not None}

    found = dataclasses.replace(subject, function=call, supports=supports, contract=contract, declared_form=form)
    return found, returned
