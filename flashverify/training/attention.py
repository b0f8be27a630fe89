"""What the model may compute attention with: the subject, float64, plain products in the input dtype, and float64 with errors as variables."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

import torch

from flashverify.errors import NoVerdictError
from flashverify.formats import FORMATS
from flashverify.outputs import BACKWARD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.case.problem import Problem
    from flashverify.subjects.interface import Subject
    from flashverify.truth import Inputs

__all__ = ["Attention", "Call", "ErrorVariables", "Exact", "OfSubject", "Plain"]


class Attention(Protocol):
    """O `[B, H, S, D]` float64 from q, k and v of one layer, with a gradient."""

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """O."""


@dataclasses.dataclass(slots=True)
class Call:
    """What the subject was given in one layer of one step, and what it returned.

    Attributes:
        problem: with dO once the backward ran.
        outputs: by name.
    """

    problem: Problem
    outputs: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)


class OfSubject:
    """The subject's forward and backward, in the order of a training: every layer's forward before the first backward.

    Args:
        subject: the kernel under test.
        problems: of each layer, without values.

    Attributes:
        calls: of each layer.
    """

    def __init__(self, subject: Subject, problems: list[Problem]) -> None:
        self.subject = subject
        self.calls = [Call(problem) for problem in problems]

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """O in float64; q, k and v are rounded to the dtype of the case."""
        found: torch.Tensor = _Called.apply(q, k, v, self.subject, self.calls[layer])  # type: ignore[no-untyped-call]
        return found


class _Called(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, subject: Subject, call: Call) -> Any:
        dtype = FORMATS[call.problem.case.dtype].dtype
        q, k, v = (x.to(dtype).contiguous() for x in (q, k, v))
        call.problem = dataclasses.replace(call.problem, q=q, k=k, v=v)
        forward = subject.forward(call.problem)
        _require_shape("o", forward.o, call.problem.case.shape_o)
        call.outputs = {"o": forward.o.detach()} | ({} if forward.lse is None else {"lse": forward.lse.detach()})
        ctx.asked = subject, call, forward
        return forward.o.detach().double()

    @staticmethod
    def backward(ctx: Any, do: torch.Tensor) -> Any:
        subject, call, forward = ctx.asked
        dtype = FORMATS[call.problem.case.dtype].dtype
        call.problem = dataclasses.replace(call.problem, do=do.to(dtype).contiguous())
        gradients = subject.backward(call.problem, forward)
        found = {name: x.detach() for name in BACKWARD if (x := getattr(gradients, name)) is not None}
        for name, given in (("dq", call.problem.q), ("dk", call.problem.k), ("dv", call.problem.v)):
            _require_shape(name, found.get(name), given.shape)
        call.outputs |= found
        return *(found[name].double() for name in ("dq", "dk", "dv")), None, None


def _require_shape(name: str, tensor: torch.Tensor | None, shape: Sequence[int]) -> None:
    """Refuses an output that the model cannot go on with.

    Raises:
        NoVerdictError: it is missing or has another shape.
    """
    if tensor is None or tuple(tensor.shape) != tuple(shape):
        found = "missing" if tensor is None else f"of shape {list(tensor.shape)}"
        raise NoVerdictError(f"{name} is {found}, expected {list(shape)}: flashverify run judges that")


class Exact:
    """Attention in float64, from the formula.

    Args:
        inputs: of each layer: the scale, what each row sees, and what dropout keeps.
    """

    def __init__(self, inputs: list[Inputs]) -> None:
        self._inputs = inputs

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """O."""
        i = self._inputs[layer]
        scores = (q @ k.mT) * i.scale
        if i.visible is not None:
            scores = scores.masked_fill(~i.visible, -torch.inf)
        return _dropped(scores.softmax(-1), i) @ v


class Plain:
    """Attention as three operations of torch in the input dtype, the softmax in fp32.

    Args:
        inputs: as of `Exact`.
        dtype: of the products.
    """

    def __init__(self, inputs: list[Inputs], dtype: str) -> None:
        self._inputs, self._dtype = inputs, FORMATS[dtype].dtype

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """O."""
        i = self._inputs[layer]
        q, k, v = (x.to(self._dtype) for x in (q, k, v))
        scores = ((q @ k.mT) * i.scale).float()
        if i.visible is not None:
            scores = scores.masked_fill(~i.visible, -torch.inf)
        return (_dropped(scores.softmax(-1), i).to(self._dtype) @ v).double()


class ErrorVariables:
    """Another attention, with an error added wherever the subject's may have one.

    Args:
        attention: what the errors are added to.
        given: the errors of each layer by name; those that are not given are 0.

    Attributes:
        errors: of each layer by name, variables: `q`, `k`, `v`, `do` (the casts to the input dtype), `o`, `dq`, `dk`, `dv` (the subject's).
    """

    def __init__(self, attention: Attention, given: Sequence[dict[str, torch.Tensor]] = ()) -> None:
        self._attention, self._given = attention, given
        self.errors: list[dict[str, torch.Tensor]] = []

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """O."""
        like = {"q": q, "k": k, "v": v, "dq": q, "dk": k, "dv": v, "o": v, "do": v}
        given = self._given[layer] if self._given else {}
        errors = {name: given.get(name, torch.zeros_like(x)).detach().requires_grad_() for name, x in like.items()}
        self.errors.append(errors)
        q, k, v = (_added(x, errors[name], errors[f"d{name}"]) for name, x in (("q", q), ("k", k), ("v", v)))
        return _added(self._attention(layer, q, k, v), errors["o"], errors["do"])


def _added(x: torch.Tensor, error: torch.Tensor, gradient_error: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = _Added.apply(x, error, gradient_error)  # type: ignore[no-untyped-call]
    return found


class _Added(torch.autograd.Function):
    """x with an error, and its gradient with another one; differentiable twice."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, error: torch.Tensor, gradient_error: torch.Tensor) -> Any:
        ctx.save_for_backward(gradient_error)
        return x + error

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (error,) = ctx.saved_tensors
        return gradient + error, gradient, None


def _dropped(weights: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    return weights if inputs.keep is None else torch.where(inputs.keep, weights / (1 - inputs.dropout), 0.0)
