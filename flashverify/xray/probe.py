"""A problem with chosen values in the memory layout of a case, and what a subject makes of it, in float64."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from flashverify.case.shared_kv import shares
from flashverify.case.tensors import MODIFYING
from flashverify.errors import UsageError
from flashverify.subjects.blame import subject_code
from flashverify.xray.placed import like, paged, widened

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.subjects.interface import Contract, Forward, Subject
    from flashverify.xray.declared import Declared

__all__ = ["Probe", "refusal"]

_SCALES = (2.0**-12, 2.0**12)
"""Magnitudes of the scale that gradients can be read under."""


def refusal(case: Case) -> str | None:
    """Why no count can be read of `case`, or None."""
    if case.quantised is not None:
        return "quantised: the values that count pairs are no codes; counts need a case without quantised=..."
    if case.dropout:
        return f"dropout={case.dropout}: which weights are dropped is no mask; counts need dropout=0"
    if 0 in (case.batch, case.seq_q, case.seq_k):
        return f"batch={case.batch}, seq_q={case.seq_q}, seq_k={case.seq_k}: nothing to count"
    return None


class Probe:
    """Runs a subject on chosen q, k, v and dO; everything else that is added to a logit is 0.

    A sink has the logit 0: it counts as one more key of every row that sees one.

    Attributes:
        case: the problem.
        declared: its mask.
        launches: passes so far, a forward or a backward each.
        has_backward: whether gradients can be read.
        scale: of the logits in `gradients`; 0 where they cannot be read.
        outside_rows: bool `[B, 1, Sq, 1]`: rows whose outputs the contract leaves open.
        outside_keys: bool `[B, 1, 1, Sk]`: keys whose gradients it leaves open.

    Raises:
        UsageError: see `refusal`.
    """

    def __init__(self, subject: Subject, problem: Problem, declared: Declared) -> None:
        reason = refusal(problem.case)
        if reason is not None:
            raise UsageError(f"counting is not possible with {reason}")
        self.subject, self.case, self.declared, self.launches = subject, problem.case, declared, 0
        self._base = _neutral(problem)
        self.outside_rows, self.outside_keys = _outside(subject.contract, problem)
        self._graded = self._with_scale()
        promised = subject.contract.gradients >= {"dq", "dk", "dv"}
        self.has_backward = problem.case.grad.backward and subject.supports.backward and promised
        self.scale = 0.0 if self._graded is None else self._graded.scale

    def _with_scale(self) -> Problem | None:
        """The problem with a scale that leaves dQ and dK readable, or None."""
        low, high = _SCALES
        if low <= abs(self.case.softmax_scale) <= high:
            return self._base
        case = dataclasses.replace(self.case, scale=1.0)
        return dataclasses.replace(self._base, case=case) if self.subject.supports.refusal(case) is None else None

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self._base.q.device

    @property
    def has_sink(self) -> bool:
        """Whether rows have a sink."""
        return self._base.sink is not None

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of q, k and v."""
        return self._base.q.dtype

    def forward(
        self,
        *,
        q: torch.Tensor | None = None,
        k: torch.Tensor | None = None,
        v: torch.Tensor | None = None,
        graded: bool = False,
    ) -> tuple[Problem, Forward]:
        """One forward; what is not given is 0.

        Args:
            q: broadcastable to `[B, Hq, Sq, D]`.
            k: broadcastable to `[B, Hkv, Sk, D]`; where V lies in the buffer of K, either this or v.
            v: broadcastable to `[B, Hkv, Sk, Dv]`.
            graded: with `scale`.
        """
        base = self._graded if graded else self._base
        assert base is not None
        if k is None and v is not None and shares(self.case):
            k = widened(v, self.case)
        pages = base.pages
        if pages is not None:
            pages = dataclasses.replace(pages, k=paged(base, pages, pages.k, k), v=paged(base, pages, pages.v, v))
        problem = dataclasses.replace(
            base, q=like(base.q, q), k=like(base.k, k), v=like(base.v, v), pages=pages, do=None
        )
        if base.do is not None:
            problem = dataclasses.replace(problem, do=like(base.do, None))
        self.launches += 1
        with subject_code():
            forward = self.subject.forward(problem)
        return problem, forward

    def backward(self, problem: Problem, forward: Forward, do: torch.Tensor) -> dict[str, torch.Tensor]:
        """dq, dk and dv in float64 for dO `do`, broadcastable to `[B, Hq, Sq, Dv]`."""
        assert self._base.do is not None
        self.launches += 1
        with subject_code():
            found = self.subject.backward(dataclasses.replace(problem, do=like(self._base.do, do)), forward)
        return {"dq": found.dq.double(), "dk": found.dk.double(), "dv": found.dv.double()}

    def mass(self, forward: Forward) -> torch.Tensor:
        """Sum of the weights of each row of equal logits, `[B, Hq, Sq]` float64: e^LSE, or the declared number without an LSE."""
        import torch

        contract, per_row = self.subject.contract, self.declared.per_row
        if forward.lse is None or contract.lse_base is None:
            return self.declared_mass
        lse = forward.lse.detach().double()
        found = torch.exp2(lse) if contract.lse_base == "2" else lse.exp()
        promised = 0.0 if contract.empty_row_lse == "sink" and self.has_sink else contract.fixed_lse
        open_rows = self.outside_rows.squeeze(-1)
        return found.masked_fill((_same(lse, promised) | open_rows) & (per_row == 0), 0.0)

    def output(self, forward: Forward) -> torch.Tensor:
        """O in float64; rows that see no key hold 0 where they hold what the contract says, or where it leaves them open."""
        o = forward.o.detach().double()
        kept = _same(o, self.subject.contract.empty_row_o).all(-1) | self.outside_rows.squeeze(-1)
        empty = kept & (self.declared.per_row == 0)
        return o.masked_fill(empty.unsqueeze(-1), 0.0)

    @property
    def declared_mass(self) -> torch.Tensor:
        """Sum of the weights of each row as declared, `[B, Hq, Sq]` float64."""
        return self.declared.per_row + (self.declared.per_row > 0) * float(self.has_sink)

    def keys(self, mass: torch.Tensor) -> torch.Tensor:
        """The number of keys that a mass stands for: the sink's own weight is left out."""
        return mass - (mass > 0) * float(self.has_sink)


def _outside(contract: Contract, problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """Bool `[B, 1, Sq, 1]` and `[B, 1, 1, Sk]`: rows and keys whose outputs the contract leaves open."""
    import torch

    case, device = problem.case, problem.q.device
    is_open = case.mask.packed is not None or contract.padding == "undefined"

    def beyond(inside: tuple[int, ...] | None, size: int) -> torch.Tensor:
        lengths = inside if inside is not None and is_open else (size,) * case.batch
        return torch.arange(size, device=device) >= torch.tensor(lengths, device=device).view(-1, 1, 1)

    rows, keys = beyond(case.rows_inside, case.seq_q), beyond(case.keys_inside, case.seq_k)
    return rows.unsqueeze(-1), keys.unsqueeze(2)


def _same(values: torch.Tensor, promised: float | None) -> torch.Tensor:
    """Bool: whether each value is the promised one, NaN being NaN; all are where nothing is promised."""
    import torch

    if promised is None:
        return torch.ones_like(values, dtype=torch.bool)
    return values.isnan() if math.isnan(promised) else values == promised


def _neutral(problem: Problem) -> Problem:
    """The problem with nothing added to its logits and no gradient through the LSE."""
    changed: dict[str, Any] = {
        name: like(tensor, None) for name in (*MODIFYING, "dlse") if (tensor := getattr(problem, name)) is not None
    }
    return dataclasses.replace(problem, **changed)
