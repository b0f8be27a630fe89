"""What is done to logits and weights besides the scaled dot product: checked, and as the kernels know it."""

import math
from dataclasses import dataclass

import torch

from flashverify_kernels.config import Pairs
from flashverify_kernels.dropout import Dropout
from flashverify_kernels.masking import Extent
from flashverify_kernels.options import Options
from flashverify_kernels.relative import RelativeBias, by_distance
from flashverify_kernels.runtime import readable

LOG2_E = math.log2(math.e)
_CAPS = 2.0**100


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Terms:
    """Checked terms; an absent one is None.

    Attributes:
        softcap: natural units.
        slopes: `[Hq]` fp32 slopes of ALiBi.
        by_distance: `[Hq, 2 * reach + 1]` fp32, a relative bias of each clipped distance, natural units.
        align_distances: whether distances are measured from a diagonal that ends at the last key.
        bias: `[B or 1, Hq or 1, rows, keys]` in the dtype of q; packed sequences number their keys within the sequence.
        sink: `[Hq]` fp32, natural units.
        dropout: with p > 0.
    """

    softcap: float | None = None
    slopes: torch.Tensor | None = None
    by_distance: torch.Tensor | None = None
    align_distances: bool = False
    bias: torch.Tensor | None = None
    sink: torch.Tensor | None = None
    dropout: Dropout | None = None

    @property
    def pairs(self) -> Pairs:
        """What is done per query and key; a sink is the business of rows."""
        if self.bias is not None or self.by_distance is not None:
            return "bias"
        return "plain" if self.softcap is None and self.slopes is None and self.dropout is None else "terms"


def check_terms(options: Options, extent: Extent, dtype: torch.dtype, scale: float) -> Terms:
    """Check softcap, ALiBi, bias, sink, relative bias and dropout.

    Args:
        options: what the caller asked for.
        extent: sizes of the problem.
        dtype: of q.
        scale: of the dot products.

    Raises:
        TypeError: an argument of the wrong type or dtype.
        ValueError: a shape, stride, device or value that is not accepted.
    """
    _check_softcap(options.softcap, scale)
    for name, x in (("alibi_slopes", options.alibi_slopes), ("sink", options.sink)):
        if x is not None:
            _check_tensor(name, x, torch.float32, extent)
            if tuple(x.shape) != (extent.heads,):
                raise ValueError(f"{name}: expected shape ({extent.heads},), one per query head, got {tuple(x.shape)}")
    if options.alibi_slopes is not None and options.alibi_slopes.requires_grad:
        raise ValueError("alibi_slopes: slopes have no gradient; detach them")
    _check_bias(options, extent, dtype)
    _check_relative(options.relative_bias, extent)
    dropout = options.dropout
    if dropout is not None and not isinstance(dropout, Dropout):
        raise TypeError(f"dropout: expected a Dropout, got {type(dropout).__name__}")
    return Terms(
        softcap=None if options.softcap is None else float(options.softcap),
        slopes=None if options.alibi_slopes is None else options.alibi_slopes.contiguous(),
        by_distance=None if options.relative_bias is None else by_distance(options.relative_bias),
        align_distances=options.causal == "bottom-right",
        bias=options.bias,
        sink=None if options.sink is None else options.sink.contiguous(),
        dropout=dropout if dropout is not None and dropout.p > 0 else None,
    )


def _check_softcap(softcap: float | None, scale: float) -> None:
    if softcap is None:
        return
    if isinstance(softcap, bool) or not isinstance(softcap, (int, float)):
        raise TypeError(f"softcap: expected a number, got {softcap!r} ({type(softcap).__name__})")
    if not 1 / _CAPS <= softcap <= _CAPS:
        raise ValueError(f"softcap: expected a positive number from 2^-100 to 2^100, got {softcap!r}")
    if not abs(scale / softcap) <= 2.0**127:
        raise ValueError(f"softcap: expected scale / softcap to be a finite fp32 number, got {scale!r} / {softcap!r}")


def _check_tensor(name: str, x: torch.Tensor, dtype: torch.dtype, extent: Extent) -> None:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(x).__name__}")
    if x.dtype != dtype:
        raise TypeError(f"{name}: expected {dtype}, got {x.dtype}")
    if x.device != extent.device:
        raise ValueError(f"{name}: expected device {extent.device} (that of q), got {x.device}")


def _check_bias(options: Options, extent: Extent, dtype: torch.dtype) -> None:
    bias = options.bias
    if bias is None:
        return
    _check_tensor("bias", bias, dtype, extent)
    shape = tuple(bias.shape)
    expected = (extent.batch, extent.heads, extent.rows, extent.max_k)
    if (
        len(shape) != 4
        or shape[2:] != expected[2:]
        or any(n not in (1, m) for n, m in zip(shape, expected, strict=True))
    ):
        raise ValueError(f"bias: expected shape {expected}, the first two axes possibly 1, got {shape}")
    if extent.max_k > 1 and bias.stride(3) != 1:
        raise ValueError(f"bias: the last axis must have stride 1, got strides {bias.stride()}")


def _check_relative(relative: RelativeBias | None, extent: Extent) -> None:
    if relative is None:
        return
    if not isinstance(relative, RelativeBias):
        raise TypeError(f"relative_bias: expected a RelativeBias, got {type(relative).__name__}")
    table, buckets = relative.table, relative.distance_buckets
    _check_tensor("relative_bias.table", table, torch.float32, extent)
    _check_tensor("relative_bias.distance_buckets", buckets, torch.int32, extent)
    if table.dim() != 2 or table.shape[0] != extent.heads or not table.shape[1]:
        shape = tuple(table.shape)
        raise ValueError(
            f"relative_bias.table: expected shape ({extent.heads}, buckets), 1 bucket or more, got {shape}"
        )
    if buckets.dim() != 1 or buckets.shape[0] % 2 == 0:
        shape = tuple(buckets.shape)
        raise ValueError(f"relative_bias.distance_buckets: expected shape (2 * reach + 1,), got {shape}")
    if readable(buckets) and not 0 <= int(buckets.min()) <= int(buckets.max()) < table.shape[1]:
        found = f"from {int(buckets.min())} to {int(buckets.max())}"
        raise ValueError(f"relative_bias.distance_buckets: expected 0 to {table.shape[1] - 1}, got values {found}")
