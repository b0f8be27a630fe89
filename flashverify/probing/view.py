"""A subject under conventions that are tried, in place of those that it declares."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from flashverify.case.masks.mask import PARTS
from flashverify.case.modifiers.logits import LOGIT_MODIFIERS
from flashverify.probing.returns import brought_back
from flashverify.subjects.interface import Contract, Forward, Gradients, Supports

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form
    from flashverify.probing.answers import Returned
    from flashverify.probing.questions import Assumed
    from flashverify.subjects.interface import Subject

__all__ = ["View", "is_function", "supports_of", "view_of"]

_WIDEST: dict[str, Any] = {
    "precisions": ("ieee", "tf32", "tf32x3"),
    "masks": tuple(part.name for part in PARTS if part.role != "alignment"),
    "window_alignments": ("top-left", "bottom-right"),
    "banded_trees": True,
    "entry_trees": True,
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
    "transposed": True,
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
    if not is_function(subject):
        view = View(whole=subject, supports=supports, contract=contract, declared_form=form, returned=returned)
        return view, returned
    made = cast("Any", subject)
    declared = {"supports": supports, "contract": contract, "declared_form": form}
    function = _bringing_back(made.function, returned)
    return cast("Subject", dataclasses.replace(made, function=function, **declared)), returned


def is_function(subject: Subject) -> bool:
    """Whether the subject is made of a function and its declarations, as `@subject` makes it."""
    if not dataclasses.is_dataclass(subject):
        return False
    return {field.name for field in dataclasses.fields(subject)} >= {
        "function",
        "supports",
        "contract",
        "declared_form",
    }


def _bringing_back(function: Callable[[Problem], Any], returned: dict[str, Returned]) -> Callable[[Problem], Any]:
    """The function with its outputs in the layout and dtype that the harness takes."""

    def call(problem: Problem) -> Any:
        result = function(problem)
        if isinstance(result, Mapping):
            return {name: _back(name, value, problem, returned) for name, value in result.items()}
        if isinstance(result, Forward):
            o, lse = (_back(name, getattr(result, name), problem, returned) for name in ("o", "lse"))
            return dataclasses.replace(result, o=o, lse=lse)
        if isinstance(result, tuple):
            names = itertools.chain(("o", "lse"), itertools.repeat(""))
            return tuple(_back(name, value, problem, returned) for name, value in zip(names, result, strict=False))
        return _back("o", result, problem, returned)

    return call


def _back(name: str, value: Any, problem: Problem, returned: dict[str, Returned]) -> Any:
    import torch

    if name not in ("o", "lse") or not isinstance(value, torch.Tensor):
        return value
    dtype = problem.q.dtype if name == "o" else torch.float32
    value, returned[name] = brought_back(name, value, problem.case, dtype)
    return value
