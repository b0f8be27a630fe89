"""Which weights dropout keeps: as the caller says, or as flashverify's generator says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.api.options import value_of
from flashverify.api.tensors import expanded
from flashverify.errors import UsageError

if TYPE_CHECKING:
    import torch

    from flashverify.api.options import AttentionOptions
    from flashverify.case.case import Case

__all__ = ["kept"]


def kept(case: Case, options: AttentionOptions, device: torch.device) -> tuple[Any, float]:
    """The pairs that are kept, as `flashverify.truth.Inputs` takes them, and the probability; (None, 0) without dropout.

    Raises:
        UsageError: a number is out of its range, or what is kept is said twice or not at all.
    """
    from flashverify.case.masks.positions import positions
    from flashverify.truth import kept_pairs

    p, keep, seed = (value_of(options, f"dropout_{name}") for name in ("p", "keep", "seed"))
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p < 1:
        raise UsageError(f"dropout_p={p!r} is not accepted: 0 <= dropout_p < 1")
    if not p:
        if keep is not None:
            raise UsageError("dropout_keep is not accepted without dropout_p, the probability that a weight is dropped")
        return None, 0.0
    if (keep is None) == (seed is None):
        raise UsageError(f"dropout_p={p!r} needs dropout_keep or dropout_seed, and not both")
    if keep is not None:
        shape = (case.batch, case.heads_q, case.seq_q, case.seq_k)
        return expanded("dropout_keep", keep, shape, device, "the weight is kept"), float(p)
    numbers = {"dropout_seed": (seed, 64), "dropout_offset": (value_of(options, "dropout_offset"), 32)}
    for name, (number, bits) in numbers.items():
        if not isinstance(number, int) or not 0 <= number < 2**bits:
            raise UsageError(f"{name}={number!r} is not accepted: an integer, 0 <= {name} < 2**{bits}")
    place = positions(case, device)
    keep = kept_pairs(
        seed=numbers["dropout_seed"][0],
        offset=numbers["dropout_offset"][0],
        p=float(p),
        heads=case.heads_q,
        sequence=place.row_sequence,
        row=place.row,
        key=place.key,
    )
    return keep, float(p)
