"""What a kernel under test must offer: the small interface between flashverify and any attention implementation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from flashverify.case.supports import Supports
from flashverify.errors import UsageError
from flashverify.outputs import BACKWARD

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form

__all__ = ["Contract", "Forward", "Gradients", "Selective", "Subject", "Supports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What a subject promises where implementations legitimately differ.

    Args:
        lse_base: of the LSE that it returns; None where it returns none.
        empty_row_o: O of a row that sees no key; None is undefined.
        empty_row_lse: LSE of such a row; `"sink"` is the sink of its head where the problem has sinks, as an exact logsumexp gives it, and
            -inf where it has none; None is undefined. Where one of the two is undefined, so are delta and dQ of these rows.
        deterministic: bitwise equal over repeats; None is unknown: measured, never a fail.
        batch_invariant: a sequence gives the same bits alone and in a batch; None likewise.
        padding: what output elements outside the declared lengths hold: `written` (O and gradients 0, LSE -inf) or
            `undefined`.
        gradients: what its backward returns, of the names in `flashverify.outputs.BACKWARD`; one that a case calls for and that is
            missing is a failure.
        modifiers_saturate: finite biases, slopes and sinks, however large, never make O or LSE NaN nor LSE infinite: in base 2 each
            bias, each sink and their sums with the scaled products act as the largest finite number of their sign where they
            leave fp32, and slopes beyond 2^96 as 2^96. Gradients of rows whose logits are that large are left open.
        reads_outputs: the backward starts from the returned O and LSE, as that of flash attention does, and so its gradients are judged
            given these too. None is unknown: gradients that are right as those of a backward that keeps P or an unrounded O are right
            (`Form.delta_from`, `Form.p_from`), and those that are right end to end but as no such backward's given O and LSE make a
            warning, no failure. False leaves the comparison given O and LSE out.
        masked_loads: what lanes of a Triton load hold that are masked off without `other=`: `undefined`, as its language has it, or
            `zero`, as compiled kernels have it in practice. Undefined ones that an output depends on are a failure of the check sanitizer.
        graphs: a pass can be captured in a CUDA graph; None is unknown: a capture is tried, and no failure where it is refused.

    Raises:
        UsageError: `gradients` is no frozenset of these names, or another field has a value that is none of those above.
    """

    lse_base: Literal["e", "2"] | None = "e"
    empty_row_o: float | None = 0.0
    empty_row_lse: float | Literal["sink"] | None = float("-inf")
    deterministic: bool | None = None
    batch_invariant: bool | None = None
    padding: Literal["written", "undefined"] = "written"
    gradients: frozenset[str] = frozenset({"dq", "dk", "dv"})
    modifiers_saturate: bool = False
    reads_outputs: bool | None = None
    masked_loads: Literal["undefined", "zero"] = "undefined"
    graphs: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.gradients, frozenset) or not self.gradients <= set(BACKWARD):
            raise UsageError(
                f"Contract(gradients={self.gradients!r}) is not accepted: a frozenset of {', '.join(sorted(BACKWARD))}"
            )
        if self.masked_loads not in ("undefined", "zero"):
            raise UsageError(f"Contract(masked_loads={self.masked_loads!r}) is not accepted: 'undefined' or 'zero'")
        for name, others in (("empty_row_o", (None,)), ("empty_row_lse", ("sink", None))):
            value = getattr(self, name)
            if value not in others and (isinstance(value, bool) or not isinstance(value, int | float)):
                accepted = ", ".join(["a number", *map(repr, others)])
                raise UsageError(f"Contract({name}={value!r}) is not accepted: {accepted}")

    @property
    def fixed_lse(self) -> float | None:
        """The LSE of a row that sees neither a key nor a sink; None where it is undefined."""
        return float("-inf") if isinstance(self.empty_row_lse, str) else self.empty_row_lse


@dataclass(frozen=True, slots=True)
class Forward:
    """What the forward returns.

    Args:
        o: `[B, Hq, Sq, Dv]` in the input dtype.
        lse: `[B, Hq, Sq]` fp32; None where the contract has no LSE.
        saved: whatever the backward needs.
    """

    o: torch.Tensor
    lse: torch.Tensor | None = None
    saved: Any = None


@dataclass(frozen=True, slots=True)
class Gradients:
    """What the backward returns; what there is not is None.

    Args:
        dq: shaped as q, in the input dtype.
        dk: shaped as k, in the input dtype.
        dv: shaped as v, in the input dtype.
        delta: `[B, Hq, Sq]` fp32, where it is stored: rowsum(dO * O), or that minus dLSE (`Form.stored_delta`).
        dbias: shaped as the bias, in its dtype.
        dsink: `[Hq]` fp32.
        drelative_bias: `[Hq, buckets]` fp32.
    """

    dq: torch.Tensor
    dk: torch.Tensor
    dv: torch.Tensor
    delta: torch.Tensor | None = None
    dbias: torch.Tensor | None = None
    dsink: torch.Tensor | None = None
    drelative_bias: torch.Tensor | None = None


@runtime_checkable
class Subject(Protocol):
    """A kernel under test. `@subject` makes one from a function; a class of this shape is one too."""

    @property
    def name(self) -> str:
        """The name in reports."""

    @property
    def supports(self) -> Supports:
        """The cases it accepts."""

    @property
    def contract(self) -> Contract:
        """Its promises."""

    def form(self, case: Case) -> Form:
        """Its numerical form for `case`."""

    def device(self) -> str:
        """Where its tensors lie: `cpu` or `cuda`."""

    def evidence(self) -> str:
        """What its verdicts rest on: `interpreter`, `cpu`, or the GPU's name and architecture."""

    def forward(self, problem: Problem) -> Forward:
        """O and LSE."""

    def backward(self, problem: Problem, forward: Forward) -> Gradients:
        """The gradients, from the problem's dO and dLSE and this subject's own forward."""


@runtime_checkable
class Selective(Protocol):
    """A subject whose backward can be told which gradients are wanted; one that has this method is held to it."""

    def backward_of(self, problem: Problem, forward: Forward, wanted: frozenset[str]) -> dict[str, torch.Tensor]:
        """The gradients `wanted`, out of `flashverify.outputs.INPUT_GRADIENTS`, by name, shaped as in `Gradients`, and no others.

        `forward` may be left aside where a forward must know beforehand whose gradients will be wanted.
        """
