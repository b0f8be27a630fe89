"""From the tensors of a case to the inputs of the oracles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.modifiers.alibi import acting_slopes
from flashverify.case.quantised.dequantised import dequantised
from flashverify.truth.inputs import Inputs
from flashverify.truth.pair_sources import buckets_of, distances, kept_pairs, table_biases
from flashverify.truth.taint import Clean, clean

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem

__all__ = ["inputs_of"]


def inputs_of(problem: Problem) -> tuple[Inputs, Clean]:
    """The finite values of the problem, and what non-finite inputs may have reached."""
    from flashverify.case.masks.positions import shared_positions
    from flashverify.case.masks.predicate import visible

    tidy, case = clean(problem), problem.case
    biases: list[Any] = [] if problem.bias is None else [_declared(problem.bias, case)]
    keep = buckets = None
    if problem.slopes is not None or problem.relative_bias is not None or case.dropout:
        place = shared_positions(case, problem.q.device)
        if problem.slopes is not None:
            biases.append(distances(acting_slopes(problem.slopes), place.row + place.shift, place.key))
        if problem.relative_bias is not None and problem.distance_buckets is not None:
            found = (problem.distance_buckets, place.row + place.shift, place.key)
            biases.append(table_biases(problem.relative_bias, *found))
            buckets = buckets_of(*found)
        if case.dropout:
            keep = kept_pairs(
                seed=problem.dropout_seed,
                offset=problem.dropout_offset,
                p=case.dropout,
                heads=case.heads_q,
                sequence=place.row_sequence,
                row=place.row,
                key=place.key,
            )
    inputs = Inputs(
        q=tidy.q,
        k=tidy.k,
        v=tidy.v,
        scale=problem.scale,
        visible=visible(case, problem.q.device),
        do=tidy.do,
        dlse=tidy.dlse,
        softcap=problem.softcap,
        biases=tuple(biases),
        bias_shape=None if problem.bias is None else tuple(problem.bias.shape),
        relative_buckets=buckets,
        bucket_count=None if problem.relative_bias is None else problem.relative_bias.shape[1],
        sink=problem.sink,
        keep=keep,
        dropout=case.dropout,
        **_scales(problem),
    )
    return inputs, tidy


def _scales(problem: Problem) -> dict[str, Any]:
    """The scale of each key, and of each row of a q in codes; 0 for one that is no finite number or of nothing declared; nothing of values."""
    import torch

    values, case = dequantised(problem), problem.case
    if values is None:
        return {}

    def finite(scale: torch.Tensor, declared: tuple[int, ...] | None) -> torch.Tensor:
        count = scale.shape[2]
        lengths = torch.tensor(declared if declared is not None else (count,) * case.batch, device=scale.device)
        inside = torch.arange(count, device=scale.device) < lengths.view(case.batch, 1, 1)
        return scale.where(torch.isfinite(scale) & inside.unsqueeze(-1), 0.0)

    found = {"k_scale": finite(values.k_scale, case.keys_inside), "v_scale": finite(values.v_scale, case.keys_inside)}
    return found if values.q_scale is None else found | {"q_scale": finite(values.q_scale, case.rows_inside)}


def _declared(bias: torch.Tensor, case: Case) -> torch.Tensor:
    """The bias in float64, 0 outside the declared lengths; the longest one counts for a bias that all sequences share."""
    import torch

    wide = bias.double()
    for axis, inside in ((2, case.rows_inside), (3, case.keys_inside)):
        if inside is None:
            continue
        lengths = inside if bias.shape[0] == case.batch else (max(inside, default=0),)
        limit = torch.tensor(lengths, device=bias.device).view(-1, 1, 1, 1)
        places = torch.arange(bias.shape[axis], device=bias.device).view((1, 1, -1, 1) if axis == 2 else (1, 1, 1, -1))
        wide = wide.where(places < limit, 0.0)
    return wide
