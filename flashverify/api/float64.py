"""`oracle`: attention and its gradients in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from flashverify.api.layouts import from_bhsd
from flashverify.api.options import AttentionOptions, check_names, with_options

if TYPE_CHECKING:
    import torch

__all__ = ["OracleResult", "oracle"]


@dataclass(frozen=True, slots=True)
class OracleResult:
    """Attention in float64, in the layout of the inputs. The gradients are None where neither dO nor dLSE was given.

    The shapes are those of the layout `bhsd`; see `AttentionOptions` for the others.

    Attributes:
        o: `[B, Hq, Sq, Dv]`.
        lse: `[B, Hq, Sq]`, natural logarithm; -inf for a row that sees no key.
        delta: `[B, Hq, Sq]`, rowsum(dO * O).
        dq: `[B, Hq, Sq, D]`.
        dk: `[B, Hkv, Sk, D]`, summed over the group of query heads.
        dv: `[B, Hkv, Sk, Dv]`, likewise.
        dbias: shaped as the bias, summed over the axes along which it is broadcast; None without a bias.
        dsink: `[Hq]`; None without a sink.
        drelative_bias: `[Hq, buckets]`; None without a relative bias.
    """

    o: torch.Tensor
    lse: torch.Tensor
    delta: torch.Tensor | None = None
    dq: torch.Tensor | None = None
    dk: torch.Tensor | None = None
    dv: torch.Tensor | None = None
    dbias: torch.Tensor | None = None
    dsink: torch.Tensor | None = None
    drelative_bias: torch.Tensor | None = None


@with_options
def oracle(q: Any, k: Any, v: Any, **options: Unpack[AttentionOptions]) -> OracleResult:
    """Attention and, where `do` or `dlse` is given, its gradients, in float64.

        exact = oracle(q, k, v, causal="top-left", window=(128, 0), do=do)

    Args:
        q: `[B, Hq, Sq, D]`, any float dtype of a kernel (fp16, bf16, fp32) and any framework; `layout` names other axes.
        k: `[B, Hkv, Sk, D]`; query head h reads kv head h // (Hq // Hkv).
        v: `[B, Hkv, Sk, Dv]`.
        options: masks, modifiers of the logits, dropout and incoming gradients: see `AttentionOptions`.

    Returns:
        The values, on the device of `q`.

    Raises:
        UsageError: an argument has the wrong shape, dtype or value, or two of them contradict each other.
        TypeError: an argument is unknown.
    """
    from flashverify.api.arguments import read_arguments
    from flashverify.truth import float64_values

    check_names("oracle", options)
    arguments = read_arguments(q, k, v, options)
    values = float64_values(arguments.inputs)
    return OracleResult(**{name: from_bhsd(name, x, arguments.layout) for name, x in values.items()})
