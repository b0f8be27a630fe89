"""What subjects made from functions share: what is declared of them, and what their forward may return."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flashverify.errors import UsageError
from flashverify.launching.autotuning import Choices, configured
from flashverify.launching.pretend import pretend_cuda
from flashverify.outputs import FORWARD
from flashverify.subjects.evidence import evidence_on
from flashverify.subjects.interface import Contract, Forward, Supports

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form

__all__ = ["DeclaredSubject", "Function"]

Function = Callable[
    ["Problem"], "torch.Tensor | tuple[torch.Tensor, torch.Tensor] | Mapping[str, torch.Tensor] | Forward"
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredSubject:
    """A function and its declarations.

    Args:
        name: in reports.
        function: the forward.
        supports: the cases it accepts.
        contract: its promises.
        declared_form: its numerical form, or a function of the case; None is the widest one.
        where: `auto`, `cpu` or `cuda`.
        capability: of the GPU that is pretended on a machine without one; None is none.
        configurations: of autotuned kernels, by launch configuration of a case.
    """

    name: str
    function: Function
    supports: Supports
    contract: Contract
    declared_form: Form | Callable[[Case], Form] | None = None
    where: str = "auto"
    capability: tuple[int, int] | None = None
    configurations: Choices = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def surroundings(self, problem: Problem) -> Iterator[None]:
        """What the code of the subject runs in: the GPU that it pretends, and the configuration of the case."""
        with contextlib.ExitStack() as stack:
            if self.capability is not None and not problem.q.is_cuda:
                stack.enter_context(pretend_cuda(self.capability))
            if self.configurations:
                stack.enter_context(configured(self.configurations, problem.case.launch))
            yield

    def form(self, case: Case) -> Form:
        """The declared form, or the defaults that hold for a kernel that declares nothing."""
        from flashverify.numerics.form import Form

        if self.declared_form is None:
            return Form(lse_base=self.contract.lse_base or "e")
        return self.declared_form if isinstance(self.declared_form, Form) else self.declared_form(case)

    def device(self) -> str:
        """`cuda` where there is one, unless the subject was declared for the CPU."""
        import torch

        return self.where if self.where != "auto" else "cuda" if torch.cuda.is_available() else "cpu"

    def evidence(self) -> str:
        """The GPU, or the interpreter where triton is loaded in its mode, or the CPU."""
        return evidence_on(self.device())

    def returned(self, result: Any) -> Forward:
        """What the function returned, as the forward of a subject.

        Raises:
            UsageError: a name is unknown, or an LSE is promised and missing.
        """
        if isinstance(result, Mapping):
            if "o" not in result or not result.keys() <= set(FORWARD):
                raise UsageError(
                    f"subject {self.name!r} returned a mapping of {', '.join(map(repr, result))}; accepted: 'o' and 'lse'"
                )
            result = (result["o"], result.get("lse"))
        if isinstance(result, tuple) and len(result) != 2:
            raise UsageError(f"subject {self.name!r} returned {len(result)} values; accepted: o, (o, lse) or a Forward")
        if isinstance(result, Forward):
            found = result
        else:
            found = Forward(*result) if isinstance(result, tuple) else Forward(result)
        if self.contract.lse_base is not None and found.lse is None:
            raise UsageError(
                f"subject {self.name!r} returned no LSE; return (o, lse) or declare contract=Contract(lse_base=None)"
            )
        return found
