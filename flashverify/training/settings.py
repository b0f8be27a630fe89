"""What a training is made of: its sizes, its seeds and how long it takes; where its files go is told beside it."""

from __future__ import annotations

import msgspec

__all__ = ["DTYPES", "Request", "Settings"]

DTYPES = ("fp32", "bf16", "fp16")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """A training.

    Attributes:
        subject: as `--subject` takes it.
        device: `cpu` or `cuda`.
        dtype: of q, k, v, O, dO and their gradients; weights are fp32, everything else is float64.
        dropout: probability that a weight of the attention is dropped.
        steps: to take; None is no limit.
        minutes: after which no step begins; None is no limit.
        seed: of weights, batches and dropout.
        length: characters of a sequence, S.
        batch: sequences, B.
        heads: H, of queries and of keys.
        dim: channels of a head, D; the model has H D.
        layers: L.
        rate: the step along the mean gradient, which is added to 0.9 times the last one.
        unrolled: steps from the first on for which the band of the loss is derived, at most.
    """

    subject: str
    device: str
    dtype: str = "bf16"
    dropout: float = 0.0
    steps: int | None = None
    minutes: float | None = 3.0
    seed: int = 0
    length: int = 48
    batch: int = 2
    heads: int = 2
    dim: int = 16
    layers: int = 2
    rate: float = 0.05
    unrolled: int = 8


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the process of a training is asked for.

    Attributes:
        settings: of the training.
        folder: for the picture and the record, which does not name it.
    """

    settings: Settings
    folder: str
