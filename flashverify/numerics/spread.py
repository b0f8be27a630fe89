"""How far weights that err move an output that is their mean (docs/bounds.md, section 7)."""

import torch
from torch import Tensor

from flashverify.numerics.chunk import Chunk

__all__ = ["centred_spread"]


def centred_spread(chunk: Chunk, o_twice: Tensor, o_square: Tensor, W: Tensor, w1: Tensor, Dlo: Tensor) -> Tensor:
    """`sum_j W |Z V - O| / Dlo` at most, `[G, M, Dv]`: Cauchy-Schwarz turns it into matrix products.

    Args:
        chunk: The chunk.
        o_twice: Twice the oracle's O, `[G, M, Dv]`.
        o_square: Its square.
        W: Errors of the weights, `[G, M, N]`.
        w1: `[G, M, 1]` their sum, over dropped keys and the sink too.
        Dlo: `[G, M, 1]` the smallest sum of the weights.
    """
    Dv = chunk.v.shape[-1]
    Wvv = (W if chunk.kept is None else W * chunk.kept) @ chunk.vv
    Wv, Wv2 = Wvv[..., :Dv], Wvv[..., Dv:]
    if chunk.kept is not None:
        Wv, Wv2 = Wv * chunk.factor, Wv2 * chunk.factor**2
    square = torch.addcmul(Wv2, o_square, w1)
    cross = o_twice * Wv
    inner = (square - cross).clamp_(min=0.0).add_(square.add_(cross.abs()), alpha=2.0**-50)
    found: Tensor = inner.sqrt_() * (w1.sqrt() / Dlo)
    return found
