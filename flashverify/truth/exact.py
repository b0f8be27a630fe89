"""Every output of a problem by an oracle, without bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.memory.host import on_cpu
from flashverify.truth.gradients import gradients_of

if TYPE_CHECKING:
    import torch

    from flashverify.truth.inputs import Inputs

__all__ = ["exact_values", "float64_values"]


def float64_values(inputs: Inputs) -> dict[str, torch.Tensor]:
    """Every output in float64, LSE natural; the gradients only where there is a dO."""
    import flashverify_oracles as oracles

    i = inputs.dense()
    forward = oracles.forward(i.q, i.k, i.v, **i.problem())
    values = {"o": forward.o, "lse": forward.lse}
    if i.do is not None:
        values |= gradients_of(
            oracles.backward(i.q, i.k, i.v, i.do, **i.problem(), forward=forward, dlse=i.dlse, **i.learned())
        )
    return values


def exact_values(
    inputs: Inputs, *, given_o: torch.Tensor | None = None, given_lse: torch.Tensor | None = None
) -> dict[str, Any]:
    """Every output by mpmath, to about 96 bits, as object arrays of `mpmath.mpf`; LSE natural. For small problems only.

    Args:
        inputs: the problem, on any device.
        given_o: the subject's O, for the conditional gradients.
        given_lse: its LSE, natural.
    """
    import flashverify_oracles as oracles

    i = inputs.dense()
    result = oracles.exact_attention(
        on_cpu(i.q),
        on_cpu(i.k),
        on_cpu(i.v),
        on_cpu(i.do),
        **{name: on_cpu(value) for name, value in i.problem().items()},
        **{name: on_cpu(value) for name, value in i.learned().items()},
        dlse=on_cpu(i.dlse),
        given_o=on_cpu(given_o),
        given_lse=on_cpu(given_lse),
    )
    return dict(result.arrays())
