"""`@subject`: a kernel under test in a few lines, from a function that computes attention with autograd."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from flashverify.errors import UsageError
from flashverify.subjects.evidence import evidence_on
from flashverify.subjects.interface import Contract, Forward, Gradients, Supports

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form

__all__ = ["FunctionSubject", "subject"]

_INPUTS = {"dq": "q", "dk": "k", "dv": "v"}
"""Whose gradient it is."""

Function = Callable[["Problem"], "torch.Tensor | tuple[torch.Tensor, torch.Tensor]"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSubject:
    """A subject made of one function; its gradients come from autograd."""

    name: str
    function: Function
    supports: Supports
    contract: Contract
    declared_form: Form | Callable[[Case], Form] | None = None
    where: str = "auto"

    def form(self, case: Case) -> Form:
        """The declared form, or the defaults that hold for a kernel that declares nothing."""
        from flashverify.numerics.form import Form

        if self.declared_form is None:
            return Form(gap_c=3.0, lse_base=self.contract.lse_base or "e")
        return self.declared_form if isinstance(self.declared_form, Form) else self.declared_form(case)

    def device(self) -> str:
        """`cuda` where there is one, unless the subject was declared for the CPU."""
        import torch

        return self.where if self.where != "auto" else "cuda" if torch.cuda.is_available() else "cpu"

    def evidence(self) -> str:
        """The GPU, or the interpreter where triton is loaded in its mode, or the CPU."""
        return evidence_on(self.device())

    def forward(self, problem: Problem) -> Forward:
        """Calls the function on tensors that require gradients where the case has a backward."""
        return self._forward(problem, _INPUTS if problem.case.grad.backward else {})

    def _forward(self, problem: Problem, wanted: Mapping[str, str]) -> Forward:
        """Calls the function on inputs of which those in `wanted` require gradients."""
        import torch

        q, k, v = (getattr(problem, x).detach().requires_grad_(x in wanted.values()) for x in "qkv")
        with torch.set_grad_enabled(bool(wanted)):
            result = self.function(dataclasses.replace(problem, q=q, k=k, v=v))
        o, lse = result if isinstance(result, tuple) else (result, None)
        if self.contract.lse_base is not None and lse is None:
            raise UsageError(
                f"subject {self.name!r} returned no LSE; return (o, lse) or declare contract=Contract(lse_base=None)"
            )
        detached = None if lse is None else lse.detach()
        return Forward(o.detach(), detached, (q, k, v, o, lse))

    def backward(self, problem: Problem, forward: Forward) -> Gradients:
        """Gradients by autograd, from dO and, where the case has one, dLSE; the graph is kept for another backward."""
        return Gradients(**self._backward(problem, forward, _INPUTS))

    def backward_of(self, problem: Problem, forward: Forward, wanted: frozenset[str]) -> dict[str, torch.Tensor]:  # noqa: ARG002
        """Some of the gradients, from a forward of their own in which no other input requires one."""
        inputs = {name: x for name, x in _INPUTS.items() if name in wanted}
        return self._backward(problem, self._forward(problem, inputs), inputs)

    @staticmethod
    def _backward(problem: Problem, forward: Forward, wanted: Mapping[str, str]) -> dict[str, torch.Tensor]:
        import torch

        q, k, v, o, lse = forward.saved
        pairs = [(o, problem.do)]
        if problem.dlse is not None and ("dq" in wanted or "dk" in wanted or lse.requires_grad):
            pairs.append((lse, problem.dlse))  # LSE does not depend on v
        inputs = {name: x for name, x in (("dq", q), ("dk", k), ("dv", v)) if name in wanted}
        outputs, gradients = zip(*pairs, strict=True)
        found = torch.autograd.grad(outputs, tuple(inputs.values()), gradients, retain_graph=True)
        return dict(zip(inputs, found, strict=True))


def subject(
    *,
    name: str | None = None,
    supports: Supports | None = None,
    contract: Contract | None = None,
    form: Form | Callable[[Case], Form] | None = None,
    device: str = "auto",
) -> Callable[[Function], FunctionSubject]:
    """Declares a function as a subject.

        @subject(supports=Supports(masks=("causal",), causal=("top-left",)))
        def mine(p):
            return my_attention(p.q, p.k, p.v, causal=p.causal is not None, scale=p.scale)  # (o, lse)

    The function gets a `Problem` (q, k, v as `[B, H, S, D]` views, scale, causal, key_lengths, tree) and returns O, or
    (O, LSE). LSE is `[B, Hq, Sq]` fp32 with the base that the contract names. Gradients come from autograd.

    Args:
        name: in reports; the function's name by default.
        supports: the cases it accepts; everything outside is reported as unsupported.
        contract: its promises; `Contract(lse_base=None)` for a function that returns no LSE.
        form: its numerical form, or a function of the case; by default the widest form of a kernel that accumulates in fp32.
        device: `auto`, `cpu` or `cuda`.

    Returns:
        A decorator: the function becomes a `Subject`.

    Raises:
        UsageError: `device` is unknown.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device={device!r} is not accepted: 'auto', 'cpu' or 'cuda'")

    def wrap(function: Function) -> FunctionSubject:
        return FunctionSubject(
            name=name or function.__name__,
            function=function,
            supports=supports or Supports(),
            contract=contract or Contract(),
            declared_form=form,
            where=device,
        )

    return wrap
