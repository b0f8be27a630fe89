"""`@subject`: a kernel under test in a few lines, from a function that computes attention with autograd."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flashverify.errors import UsageError
from flashverify.outputs import FORWARD, INPUT_GRADIENTS, output
from flashverify.subjects.evidence import evidence_on
from flashverify.subjects.inability import not_differentiable
from flashverify.subjects.interface import Contract, Forward, Gradients, Supports

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form

__all__ = ["FunctionSubject", "subject"]

Function = Callable[["Problem"], "torch.Tensor | tuple[torch.Tensor, torch.Tensor] | Mapping[str, torch.Tensor]"]


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
            return Form(lse_base=self.contract.lse_base or "e")
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
        return self._forward(problem, self._promised(problem) if problem.case.grad.backward else ())

    def _promised(self, problem: Problem) -> tuple[str, ...]:
        """The gradients by autograd: of q, k and v, and of a bias and a sink where the contract names them and the problem has them."""
        specs = [output(name) for name in INPUT_GRADIENTS]
        return tuple(
            spec.name
            for spec in specs
            if not spec.optional or (spec.name in self.contract.gradients and spec.given(problem))
        )

    def _forward(self, problem: Problem, wanted: Iterable[str]) -> Forward:
        """Calls the function on inputs of which those whose gradients are wanted require one."""
        import torch

        leaves = {
            name: getattr(problem, output(name).gradient_of or "").detach().requires_grad_(name in wanted)
            for name in self._promised(problem)
        }
        given: dict[str, Any] = {output(name).gradient_of or "": leaf for name, leaf in leaves.items()}
        with torch.set_grad_enabled(bool(wanted)):
            o, lse = self._outputs(self.function(dataclasses.replace(problem, **given)))
        detached = None if lse is None else lse.detach()
        return Forward(o.detach(), detached, (leaves, o, lse))

    def _outputs(self, result: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """O and the LSE, or None, of what the function returned."""
        if isinstance(result, Mapping):
            if "o" not in result or not result.keys() <= set(FORWARD):
                raise UsageError(
                    f"subject {self.name!r} returned a mapping of {', '.join(map(repr, result))}; accepted: 'o' and 'lse'"
                )
            result = (result["o"], result.get("lse"))
        o, lse = result if isinstance(result, tuple) else (result, None)
        if self.contract.lse_base is not None and lse is None:
            raise UsageError(
                f"subject {self.name!r} returned no LSE; return (o, lse) or declare contract=Contract(lse_base=None)"
            )
        return o, lse

    def backward(self, problem: Problem, forward: Forward) -> Gradients:
        """Gradients by autograd, from dO and, where the case has one, dLSE; the graph is kept for another backward.

        Raises:
            UsageError: the function returned an O without a gradient.
        """
        _, o, _ = forward.saved
        if not o.requires_grad:
            raise UsageError(not_differentiable(self.name))
        return Gradients(**self._backward(problem, forward, self._promised(problem)))

    def backward_of(self, problem: Problem, forward: Forward, wanted: frozenset[str]) -> dict[str, torch.Tensor]:  # noqa: ARG002
        """Some of the gradients, from a forward of their own in which no other input requires one."""
        names = tuple(name for name in self._promised(problem) if name in wanted)
        found = self._backward(problem, self._forward(problem, names), names)
        return {name: gradient for name, gradient in found.items() if gradient is not None}

    @staticmethod
    def _backward(problem: Problem, forward: Forward, wanted: tuple[str, ...]) -> dict[str, Any]:
        """The gradients wanted; None for one of a bias or a sink that O and LSE do not depend on."""
        import torch

        leaves, o, lse = forward.saved
        pairs = [(o, problem.do)]
        if problem.dlse is not None and ("dq" in wanted or "dk" in wanted or lse.requires_grad):
            pairs.append((lse, problem.dlse))  # LSE does not depend on v
        inputs = tuple(leaves[name] for name in wanted)
        unused = any(output(name).optional for name in wanted)
        outputs, gradients = zip(*pairs, strict=True)
        found = torch.autograd.grad(outputs, inputs, gradients, retain_graph=True, allow_unused=unused)
        return dict(zip(wanted, found, strict=True))


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

    The function gets a `Problem` (q, k, v as `[B, H, S, D]` views, scale, causal, key_lengths, ...) and returns O, or (O, LSE), or a
    mapping with `o` and `lse`. LSE is `[B, Hq, Sq]` fp32 with the base that the contract names. Gradients come from autograd: of q,
    k and v, and with `Contract(gradients=...)` that names `dbias` or `dsink` of a bias and a sink, which then require a gradient.

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
