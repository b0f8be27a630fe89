"""`@subject`: a kernel under test in a few lines, from a function that computes attention with autograd."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, overload

from flashverify.errors import UsageError
from flashverify.launching.autotuning import choices
from flashverify.launching.gpus import require_capability
from flashverify.outputs import INPUT_GRADIENTS, output
from flashverify.subjects.compiled import any_number_of_shapes, differentiated, graph_is_spent
from flashverify.subjects.declared import DeclaredSubject, Function
from flashverify.subjects.hand_written import Backward, HandWrittenSubject
from flashverify.subjects.inability import not_differentiable
from flashverify.subjects.interface import Contract, Forward, Gradients, Supports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form

__all__ = ["FunctionSubject", "subject"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSubject(DeclaredSubject):
    """A subject made of one function; its gradients come from autograd."""

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
        """Calls the function on inputs of which those whose gradients are wanted require one; on the tensors themselves where none is."""
        import torch

        wanted = tuple(wanted)
        leaves = {
            name: getattr(problem, output(name).gradient_of or "").detach().requires_grad_(name in wanted)
            for name in self._promised(problem)
        }
        given: dict[str, Any] = {output(name).gradient_of or "": leaf for name, leaf in leaves.items() if wanted}
        with torch.set_grad_enabled(bool(wanted)), any_number_of_shapes(), self.surroundings(problem):
            found = self.returned(self.function(dataclasses.replace(problem, **given)))
        detached = None if found.lse is None else found.lse.detach()
        return Forward(found.o.detach(), detached, (leaves, found.o, found.lse))

    def backward(self, problem: Problem, forward: Forward) -> Gradients:
        """Gradients by autograd, from dO and, where the case has one, dLSE.

        The graph is kept for another backward. Where torch compiled the function and refuses that, another backward runs the forward again.

        Raises:
            UsageError: the function returned an O without a gradient.
        """
        _, o, _ = forward.saved
        if not o.requires_grad:
            raise UsageError(not_differentiable(self.name))
        names = self._promised(problem)
        try:
            return Gradients(**self._backward(problem, forward, names))
        except RuntimeError as error:
            if not graph_is_spent(error):
                raise
        return Gradients(**self._backward(problem, self._forward(problem, names), names))

    def backward_of(self, problem: Problem, forward: Forward, wanted: frozenset[str]) -> dict[str, torch.Tensor]:  # noqa: ARG002
        """Some of the gradients, from a forward of their own in which no other input requires one."""
        names = tuple(name for name in self._promised(problem) if name in wanted)
        found = self._backward(problem, self._forward(problem, names), names)
        return {name: gradient for name, gradient in found.items() if gradient is not None}

    def _backward(self, problem: Problem, forward: Forward, wanted: tuple[str, ...]) -> dict[str, Any]:
        """The gradients wanted; None for one of a bias or a sink that O and LSE do not depend on."""
        import torch

        leaves, o, lse = forward.saved
        pairs = [(o, problem.do)]
        if problem.dlse is not None and ("dq" in wanted or "dk" in wanted or lse.requires_grad):
            pairs.append((lse, problem.dlse))  # LSE does not depend on v
        inputs = tuple(leaves[name] for name in wanted)
        unused = any(output(name).optional for name in wanted)
        outputs, gradients = zip(*pairs, strict=True)
        walk = functools.partial(torch.autograd.grad, outputs, inputs, gradients, allow_unused=unused)
        with self.surroundings(problem):
            found = differentiated(walk)
        return dict(zip(wanted, found, strict=True))


@overload
def subject(
    *,
    name: str | None = None,
    supports: Supports | None = None,
    contract: Contract | None = None,
    form: Form | Callable[[Case], Form] | None = None,
    device: str = "auto",
    backward: None = None,
    autotuned: Any = (),
    pretend_cuda: tuple[int, int] | None = None,
) -> Callable[[Function], FunctionSubject]: ...


@overload
def subject(
    *,
    name: str | None = None,
    supports: Supports | None = None,
    contract: Contract | None = None,
    form: Form | Callable[[Case], Form] | None = None,
    device: str = "auto",
    backward: Backward,
    autotuned: Any = (),
    pretend_cuda: tuple[int, int] | None = None,
) -> Callable[[Function], HandWrittenSubject]: ...


def subject(
    *,
    name: str | None = None,
    supports: Supports | None = None,
    contract: Contract | None = None,
    form: Form | Callable[[Case], Form] | None = None,
    device: str = "auto",
    backward: Backward | None = None,
    autotuned: Any = (),
    pretend_cuda: tuple[int, int] | None = None,
) -> Callable[[Function], FunctionSubject] | Callable[[Function], HandWrittenSubject]:
    """Declares a function as a subject.

        @subject(supports=Supports(masks=("causal",), causal=("top-left",)))
        def mine(p):
            return my_attention(p.q, p.k, p.v, causal=p.causal is not None, scale=p.scale)  # (o, lse)

    The function gets a `Problem` (q, k, v as `[B, H, S, D]` views, scale, causal, key_lengths, ...) and returns O, or (O, LSE), or a
    mapping with `o` and `lse`. LSE is `[B, Hq, Sq]` fp32 with the base that the contract names. Gradients come from autograd: of q,
    k and v, and with `Contract(gradients=...)` that names `dbias` or `dsink` of a bias and a sink, which then require a gradient.

    A kernel with other arrangements gets them from the methods of `Problem` (`bshd`, `varlen`, `paged`, ...), and hands its outputs to
    `p.outputs`.

    Args:
        name: in reports; the function's name by default.
        supports: the cases it accepts; everything outside is reported as unsupported.
        contract: its promises; `Contract(lse_base=None)` for a function that returns no LSE, `Contract(gradients=frozenset())` for one
            that promises no gradients: it is given cases without a backward, as with `Supports(backward=False)`.
        form: its numerical form, or a function of the case; by default the widest form of a kernel that accumulates in fp32.
        device: `auto`, `cpu` or `cuda`.
        backward: a backward written by hand, in place of autograd: a function of the problem and of the `Forward`, whose `saved` is that
            of the `Forward` that the function returned. It returns `Gradients`, (dq, dk, dv), or a mapping such as that of `p.gradients`.
        autotuned: the kernel, or several, that the function launches and that @triton.autotune decorates: each of their configurations
            becomes one of `Supports.launch_configs`, and a case that has it is run with it.
        pretend_cuda: compute capability of the GPU that `flashverify.pretend_cuda` answers for around this subject's code, on a machine
            without one.

    Returns:
        A decorator: the function becomes a `Subject`.

    Raises:
        UsageError: `device` or the capability is unknown, there is a backward of which the contract promises nothing, or what is said to be
            autotuned is not, or has its launch values declared as well.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device={device!r} is not accepted: 'auto', 'cpu' or 'cuda'")

    accepted, promised = supports or Supports(), contract or Contract()
    if not promised.gradients:
        if backward is not None:
            raise UsageError("backward=... is not accepted with Contract(gradients=frozenset()): name what it returns")
        accepted = dataclasses.replace(accepted, backward=False)
    if pretend_cuda is not None:
        require_capability("pretend_cuda", pretend_cuda)
    configurations = choices(autotuned if isinstance(autotuned, tuple | list) else (autotuned,))
    if configurations:
        if accepted.launches():
            raise UsageError(
                "autotuned=... is not accepted with Supports(launch=..., launch_configs=...): leave these out"
            )
        accepted = dataclasses.replace(accepted, launch_configs=tuple(configurations))

    def wrap(function: Function) -> Any:
        declared: dict[str, Any] = {
            "name": name or function.__name__,
            "function": function,
            "supports": accepted,
            "contract": promised,
            "capability": pretend_cuda,
            "configurations": configurations,
            "declared_form": form,
            "where": device,
        }
        return (
            FunctionSubject(**declared)
            if backward is None
            else HandWrittenSubject(**declared, backward_function=backward)
        )

    return wrap
