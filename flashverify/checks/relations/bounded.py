"""Relations that hold within the bounds of both problems, each bound from a truth of its own."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from flashverify.case.modifiers.logits import modifiers_of
from flashverify.case.tensors import PER_PAIR
from flashverify.checks.accuracy import judged_form
from flashverify.checks.passes.derived_problems import dense_case, plain
from flashverify.checks.relations.ground import within
from flashverify.checks.relations.side import Side
from flashverify.checks.relations.spec import RelationSpec
from flashverify.outputs import output
from flashverify.truth import inputs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.checks.relations.ground import Ground
    from flashverify.judge.verdict import Verdict

__all__ = ["CHANNELS", "SPECS", "with_channels"]

CHANNELS = 8
"""A block of channels that every subject's granularity of head dims divides, or is divided by."""

_SHIFT = 4.0


def _unordered(case: Case) -> bool:
    """Whether a key's number matters only through its declared length and a bitmap."""
    plain_mask = case.mask.parts() <= {"key_lengths", "query_lengths", "bitmap"}
    numbered = any(modifier.follows for modifier in modifiers_of(case))
    return plain_mask and not numbered and case.storage.page_size is None


def key_permutation(ground: Ground) -> Iterator[Verdict] | None:
    """Keys in another order, with their values, bias and bits: O, LSE, dQ stay, dK and dV follow."""
    if not _unordered(ground.problem.case) or ground.problem.case.seq_k < 2:
        return None
    return _key_permutation(ground)


def _key_permutation(ground: Ground) -> Iterator[Verdict]:
    import torch

    problem, case = ground.problem, ground.problem.case
    draw = np.random.default_rng(case.values.seed)
    shared = any(x is not None and x.shape[0] != case.batch for x in (problem.bitmap, problem.bias))
    inside = case.mask.key_lengths or (case.seq_k,) * case.batch
    least = min(inside, default=0)
    common = draw.permutation(least)
    rows = np.tile(np.arange(case.seq_k, dtype=np.int64), (case.batch, 1))
    for row, length in zip(rows, inside, strict=True):
        row[: least if shared else length] = common if shared else draw.permutation(length)
    order = torch.from_numpy(rows).to(problem.q.device)

    def along(tensor: torch.Tensor, axis: int) -> torch.Tensor:
        """`tensor[b, ..., j, ...]` becomes `tensor[b, ..., order[b, j], ...]`; one entry for all batches takes the first order."""
        shape = [1] * tensor.dim()
        index = order[: tensor.shape[0]]
        shape[0], shape[axis] = index.shape
        return tensor.gather(axis, index.view(shape).expand(tensor.shape))

    moved: dict[str, Any] = {"k": along(problem.k, 2), "v": along(problem.v, 2)}
    moved |= {name: along(x, 3) for name in PER_PAIR if (x := getattr(problem, name)) is not None}
    other = dataclasses.replace(problem, case=plain(case), **moved)
    inputs = None
    if problem.bitmap is not None:  # the case draws it in the old order
        inputs = inputs_of(other)[0]
        whole = inputs.visible(slice(0, case.seq_q), slice(0, case.seq_k))
        bits = whole.expand(case.batch, *whole.shape[1:])
        inputs = dataclasses.replace(inputs, visible=along(bits, 3))
    expected = dict(ground.sides)
    for name, side in ground.sides.items():
        if (axis := output(name).axis("key")) is not None:
            expected[name] = side.map(functools.partial(along, axis=axis))
    yield from within("key-permutation", expected, ground.within(other, inputs))


def with_channels(problem: Problem, q: float, k: float) -> Problem:
    """The problem with `CHANNELS` more channels of q and k, the first (or for q = 0 every one) holding these values; contiguous, unpaged."""
    import torch

    def wider(tensor: torch.Tensor, value: float, everywhere: bool) -> torch.Tensor:
        block = tensor.new_zeros(*tensor.shape[:3], CHANNELS)
        block[..., : CHANNELS if everywhere else 1] = value
        return torch.cat([tensor, block], -1)

    case = dense_case(problem.case, dim_qk=problem.case.dim_qk + CHANNELS)
    return dataclasses.replace(problem, case=case, q=wider(problem.q, q, False), k=wider(problem.k, k, q == 0.0))


def lse_shift(ground: Ground) -> Iterator[Verdict] | None:
    """A constant added to every logit moves the LSE by as much and nothing else: by a channel q = 1, k = c, or by a constant bias."""
    case = ground.problem.case
    if case.logits.sink or case.storage.page_size is not None or case.seq_k == 0:
        return None
    wider, shift = with_channels(ground.problem, 1.0, _SHIFT), _SHIFT * case.softmax_scale
    if case.logits.softcap or ground.subject.supports.refusal(wider.case) is not None:
        shift = _SHIFT
        if case.logits.bias is not None:
            return None
        wider = _biased(ground.problem)
        if ground.subject.supports.refusal(wider.case) is not None:
            return None
    return _lse_shift(ground, wider, shift)


def _biased(problem: Problem) -> Problem:
    case = problem.case
    bias = problem.q.new_full((1, 1, case.seq_q, case.seq_k), _SHIFT)
    logits = dataclasses.replace(case.logits, bias="shared")
    return dataclasses.replace(problem, case=dataclasses.replace(plain(case), logits=logits), bias=bias)


def _lse_shift(ground: Ground, wider: Problem, shift: float) -> Iterator[Verdict]:
    unit = 1.0 if judged_form(ground.subject, wider).lse_base == "e" else 1.0 / math.log(2.0)
    dim = ground.problem.case.dim_qk
    right = ground.within(wider)
    right |= {name: right[name].map(lambda x: x[..., :dim]) for name in ("dq", "dk") if name in right}
    left = dict(ground.sides)
    if "lse" in left:
        left["lse"] = left["lse"].shifted(shift * unit)
    left.pop("dbias", None)
    yield from within("lse-shift", left, right)


def split_merge(ground: Ground) -> Iterator[Verdict] | None:
    """The keys in two parts, each by itself, merged through their LSEs in float64: O and LSE of the whole."""
    case = ground.problem.case
    if not _unordered(case) or case.logits.sink or case.seq_k < 2 or "lse" not in ground.base.outputs:
        return None
    cut = 1 + case.values.seed % (case.seq_k - 1)
    parts = [_keys(ground.problem, 0, cut), _keys(ground.problem, cut, case.seq_k)]
    if any(ground.subject.supports.refusal(part.case) is not None for part in parts):
        return None
    return _split_merge(ground, parts, cut)


def _keys(problem: Problem, first: int, last: int) -> Problem:
    """The forward over keys `first` to `last - 1`."""
    case, mask = problem.case, problem.case.mask
    lengths = mask.key_lengths
    if lengths is not None:
        lengths = tuple(min(max(length - first, 0), last - first) for length in lengths)
    part = dataclasses.replace(
        plain(case),
        seq_k=last - first,
        mask=dataclasses.replace(mask, key_lengths=lengths),
        grad=dataclasses.replace(case.grad, backward=False, dlse=False),
    )
    cut: dict[str, Any] = {name: getattr(problem, name)[:, :, first:last] for name in ("k", "v")}
    cut |= {name: x[..., first:last].contiguous() for name in PER_PAIR if (x := getattr(problem, name)) is not None}
    if problem.key_lengths is not None:
        cut["key_lengths"] = (problem.key_lengths - first).clamp(0, last - first)
    return dataclasses.replace(problem, case=part, do=None, dlse=None, **cut)


def _split_merge(ground: Ground, parts: list[Problem], cut: int) -> Iterator[Verdict]:
    import torch

    whole, unit = ground.inputs, 1.0 if judged_form(ground.subject, ground.problem).lse_base == "e" else math.log(2.0)
    found = []
    for part, keys in zip(parts, (slice(0, cut), slice(cut, ground.problem.case.seq_k)), strict=True):
        inputs = None
        if ground.problem.bitmap is not None:  # the case draws it anew for another number of keys
            inputs = inputs_of(part)[0]
            seen = whole.visible(slice(0, part.case.seq_q), slice(0, ground.problem.case.seq_k))
            inputs = dataclasses.replace(inputs, visible=seen[..., keys])
        found.append(ground.within(part, inputs))
    (o1, l1), (o2, l2) = ((side["o"], side["lse"].times(unit)) for side in found)
    # A row that sees no key of a part has weight 0 there: its LSE, which no bound is asked of but which is no exempt one either.
    empty1, empty2 = (x.free & torch.isfinite(x.bound) for x in (l1, l2))
    a, b = l1.value.masked_fill(empty1, -torch.inf), l2.value.masked_fill(empty2, -torch.inf)
    merged = torch.logaddexp(a, b)
    none = empty1 & empty2
    w1, w2 = ((x - merged).exp().masked_fill(none, 0.0).unsqueeze(-1) for x in (a, b))
    # With e the error of L1 - L2, true and computed weights differ by at most w1 w2 expm1(e), in opposite directions:
    # |merged - O| <= e^e (w1 B1 + w2 B2) + w1 w2 expm1(e) |O1 - O2|.
    error = torch.expm1(l1.bound + l2.bound).unsqueeze(-1)
    x1, x2 = (o.value.masked_fill(empty.unsqueeze(-1), 0.0) for o, empty in ((o1, empty1), (o2, empty2)))
    bound = (w1 * o1.bound + w2 * o2.bound) * (1 + error) + w1 * w2 * error * (x1 - x2).abs()
    free = none | (l1.free & ~empty1) | (l2.free & ~empty2)
    overflown = (o1.free & ~empty1.unsqueeze(-1)) | (o2.free & ~empty2.unsqueeze(-1))
    right = {
        "o": Side(w1 * x1 + w2 * x2, bound, free.unsqueeze(-1) | overflown | ~torch.isfinite(bound)),
        "lse": Side(merged, torch.maximum(l1.bound, l2.bound), free).times(1.0 / unit),
    }
    yield from within("split-merge", {name: ground.sides[name] for name in ("o", "lse")}, right)


SPECS = (
    RelationSpec(
        name="key-permutation",
        run=key_permutation,
        sentence="keys in another order leave O, LSE and dQ as they are and reorder dK and dV",
        title="{output} depends on the order of the keys",
    ),
    RelationSpec(
        name="split-merge",
        passes=2,
        run=split_merge,
        sentence="two parts of the keys, merged through their LSEs, give the whole",
        title="{output} is not that of the keys in two parts, merged",
    ),
    RelationSpec(
        name="lse-shift",
        run=lse_shift,
        sentence="a constant added to every logit moves the LSE by as much and changes nothing else",
        title="{output} does not follow a constant added to the logits",
    ),
)
