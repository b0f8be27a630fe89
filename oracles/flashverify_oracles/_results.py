"""Results of the float64 oracle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify_oracles._inputs import Made


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """Result of the forward pass, float64.

    Attributes:
        o: `[B, Hq, Sq, Dv]` output.
        lse: `[B, Hq, Sq]` log-sum-exp of the visible logits and of the sink, base e; -inf on rows that see no key.
        row_max: `[B, Hq, Sq]` largest visible logit, natural units, without the sink; -inf on rows that see no key.
        made: the problem, for the backward; None in a result that was put together by a caller.
    """

    o: Tensor
    lse: Tensor
    row_max: Tensor
    made: Made | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Backward:
    """Gradients, float64.

    Attributes:
        delta: `[B, Hq, Sq]` rowsum(dO * O), without dLSE.
        dq: `[B, Hq, Sq, D]`.
        dk: `[B, Hkv, Sk, D]` summed over the query heads of the group.
        dv: `[B, Hkv, Sk, Dv]` summed over the query heads of the group.
        dbias: of `bias_shape`, summed over the axes along which it broadcasts; None where no shape was given.
        dsink: `[Hq]` summed over batches and rows; None without a sink.
        drelative_bias: `[Hq, bucket_count]` summed over the pairs of each bucket; None where no buckets were given.
    """

    delta: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor
    dbias: Tensor | None = None
    dsink: Tensor | None = None
    drelative_bias: Tensor | None = None
