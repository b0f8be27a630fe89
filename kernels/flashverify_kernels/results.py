"""What a forward and a backward compute."""

import math
from typing import NamedTuple

import torch


class ForwardResult(NamedTuple):
    """What the forward computes.

    Attributes:
        o: output, in the layout and dtype of q, `[B, Hq, Sq, Dv]` or `[B, Sq, Hq, Dv]`.
        lse2: LSE, log base 2, `[B, Hq, Sq]` fp32 in both layouts; -inf for a row without keys.
    """

    o: torch.Tensor
    lse2: torch.Tensor

    def lse_natural(self) -> torch.Tensor:
        """LSE in natural units, lse2 * ln(2)."""
        return self.lse2 * math.log(2)


class DecodeResult(NamedTuple):
    """What decoding computes.

    Attributes:
        o: output, in the layout and dtype of q, `[B, Hq, Sq, Dv]` or `[B, Sq, Hq, Dv]`.
        lse: natural LSE, `[B, Hq, Sq]` fp32 in both layouts.
        parts: outputs of the splits, `[splits, *o.shape]` fp32 with the axes b, h, s, c; None where there is one.
        parts_lse: their LSE, log base 2, `[splits, B, Hq, Sq]` fp32.
    """

    o: torch.Tensor
    lse: torch.Tensor
    parts: torch.Tensor | None
    parts_lse: torch.Tensor | None


class BackwardResult(NamedTuple):
    """What the backward computes; a gradient that was not asked for is None.

    Attributes:
        dq: gradient of q, in its layout and dtype.
        dk: gradient of k, likewise; summed over the group of query heads in fp32.
        dv: gradient of v, likewise.
        delta: rowsum(dO * O) - dLSE, `[B, Hq, Sq]` fp32; 0 for a row without keys.
        dbias: gradient of the bias, in its shape and dtype; summed over broadcast axes in fp32.
        dsink: gradient of the sinks, `[Hq]` fp32.
        drelative_bias: gradient of the table of a relative bias, `[Hq, buckets]` fp32; summed in fp64.
    """

    dq: torch.Tensor | None
    dk: torch.Tensor | None
    dv: torch.Tensor | None
    delta: torch.Tensor
    dbias: torch.Tensor | None = None
    dsink: torch.Tensor | None = None
    drelative_bias: torch.Tensor | None = None
