"""Worst-case bounds of the gradients of a bias, summed over what it is shared by (docs/bounds.md, section 12)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

from flashverify.formats import FORMATS, Format
from flashverify.numerics.bound_inputs import BoundInputs
from flashverify.numerics.chunk import Chunk
from flashverify.numerics.coefficients import OVERFLOW_FP32, Coefficients
from flashverify.numerics.gradients import Cores
from flashverify.numerics.overflow import Exempt

__all__ = ["PairTerms", "bias_terms", "joined_bias", "learned_terms", "onto_bias", "sum_error"]


def _four(shape: torch.Size) -> torch.Size:
    return torch.Size((1,) * (4 - len(shape)) + tuple(shape))


@dataclass(slots=True, kw_only=True, eq=False)
class PairTerms:
    """Sums over the pairs that share an element of a learned tensor of the logits, such as a bias, in its shape; of one chunk.

    Attributes:
        error: Error of dS, for B.
        self_error: The same for E64.
        size: Largest |dS|.
        trivial: Largest |dS| with weights in [0, 1].
        exempt: Number of pairs at which dS may not be finite.
        wide: Number of pairs at which dS may leave the format in which it is added; None where that is fp32.
        visible: Number of visible pairs.
    """

    error: Tensor
    self_error: Tensor
    size: Tensor
    trivial: Tensor
    exempt: Tensor
    visible: Tensor
    wide: Tensor | None = None

    @classmethod
    def of(
        cls,
        c: Coefficients,
        chunk: Chunk,
        cores: Cores,
        self_cores: Cores,
        over: Exempt,
        X: Tensor,
        onto: Callable[[Tensor], Tensor],
    ) -> Self:
        """Terms of one chunk.

        Args:
            c: Coefficients of the subject.
            chunk: The chunk.
            cores: Its errors for B.
            self_cores: Its errors for E64.
            over: Its overflow domain.
            X: `[G, M, N]` largest |dS| with weights in [0, 1].
            onto: Sums `[G, M, N]` over the pairs that share an element of the tensor.
        """
        assert over.pairs is not None
        return cls(
            error=onto(cores.ds_error),
            self_error=onto(self_cores.ds_error),
            size=onto(cores.ds_wide),
            trivial=onto(X),
            exempt=onto(over.pairs.double()),
            visible=onto(torch.ones_like(X) if chunk.vis is None else chunk.vis),
            wide=onto((cores.ds_wide >= c.dbias_max).double()) if c.dbias_max < torch.inf else None,
        )

    @classmethod
    def join(cls, parts: Sequence[Self], *, add: bool) -> Self:
        """Unites the chunks: added, or rows one after the other."""

        def joined(name: str) -> Tensor:
            chunks = [getattr(part, name) for part in parts]
            return torch.stack(chunks).sum(0) if add else torch.cat(chunks, 2)

        names = [field.name for field in fields(cls) if getattr(parts[0], field.name) is not None]
        return cls(**{name: joined(name) for name in names})

    @property
    def overflows(self) -> Tensor:
        """Elements at which an infinite dS may be added to others."""
        return torch.zeros_like(self.size, dtype=torch.bool) if self.wide is None else self.wide > 0


def onto_bias(problem: BoundInputs, shape: torch.Size) -> Callable[[Tensor], Tensor]:
    """Sums over the axes that a bias, which broadcasts to `[B, Hq, Sq, Sk]`, is shared along."""
    B, Hkv, group = problem.q.shape[:3]
    four = _four(shape)

    def onto(x: Tensor) -> Tensor:
        x = x.reshape(B, Hkv * group, -1, problem.shape.Sk)
        shared = [axis for axis in range(4) if four[axis] == 1 and x.shape[axis] != 1]
        return x.sum(shared, keepdim=True) if shared else x

    return onto


def joined_bias(problem: BoundInputs, shape: torch.Size, parts: Sequence[PairTerms]) -> PairTerms:
    """The terms of a bias: rows one after the other, added where it has one row for all."""
    return PairTerms.join(parts, add=_four(shape)[2] == 1 and problem.shape.Sq != 1)


def bias_terms(
    problem: BoundInputs, c: Coefficients, c64: Coefficients, y: Tensor, terms: PairTerms
) -> tuple[Tensor, ...]:
    """What `finish` takes of a bias's gradient, from its joined terms: `sum B_dS + (n - 1) u sum |dS|`, then the rounding of the output.

    Args:
        problem: The problem.
        c: Coefficients of the subject.
        c64: Coefficients of the oracle.
        y: The oracle's gradient, in the bias's shape.
        terms: Of all chunks.

    Returns:
        Tensors in the bias's shape. Elements that no visible pair reaches are exact.
    """
    B, Hkv, group, Sq = problem.q.shape[:4]
    n = B * Hkv * group * Sq * problem.shape.Sk // max(1, y.numel())
    size, exempt = terms.size.reshape(y.shape), terms.exempt.reshape(y.shape)
    over = terms.overflows.reshape(y.shape) & (n > 1)  # alone it is the output, which overflows or not
    core = terms.error.reshape(y.shape) + size * (sum_error(n, c.u) + c.u_dbias) + n * (c.w + c.eta_dbias)
    core64 = terms.self_error.reshape(y.shape) + size * sum_error(n, c64.u) + n * c64.w
    out = FORMATS[problem.form.grad_dtype or problem.dtype]
    return learned_terms(
        y, core, core64, exact=(terms.visible.reshape(y.shape) == 0) & (exempt == 0), exempt=(exempt > 0) | (size >= OVERFLOW_FP32) | over,
        trivial=terms.trivial.reshape(y.shape) + 2 * n * (c.w + c.eta_dbias) + 2 * c.eta_grad, out=out,
    )  # fmt: skip


def sum_error(n: int, u: float) -> float:
    """Relative error of a sum of n terms in any order."""
    t = max(n - 1, 0) * u
    return t / (1 - min(t, 0.5))


def learned_terms(
    y: Tensor, core: Tensor, core64: Tensor, *, exact: Tensor, exempt: Tensor, trivial: Tensor, out: Format
) -> tuple[Tensor, ...]:
    """What `finish` takes, in its order, of a sum that is rounded to `out`, from its errors for B and E64 before that."""
    size = y.abs().double()
    after = core + (size + core) * out.u + out.eta
    after64 = core64 * (1 + 2.0**-52) + size * 2.0**-53
    return y.double(), core, after, after64, exact, exempt, trivial
