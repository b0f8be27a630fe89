"""The check `determinism`: bitwise equal over repeats, alone as in a batch, with sequences and heads in another order.

Interpreted kernels also with their programs in another order: reversed, or drawn by the case's seed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from flashverify.case.case import Case, Values
from flashverify.checks.bitwise import first_difference
from flashverify.checks.execution import execute
from flashverify.judge.verdict import Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.problem import Problem
    from flashverify.checks.execution import Execution
    from flashverify.subjects.interface import Subject

__all__ = ["check_determinism", "promised"]

_SAME_PROBLEM = ("repeat", "program-order")

Select = Callable[["torch.Tensor", str], "torch.Tensor"]
"""Maps (tensor, its name) to the part of it that belongs to a variant."""


def promised(subject: Subject, variant: str) -> bool:
    """Whether the subject promises bitwise equality under `variant`; what is not promised is reported as a warning."""
    contract = subject.contract
    return bool(contract.deterministic and (variant in _SAME_PROBLEM or contract.batch_invariant))


def check_determinism(subject: Subject, base: Execution, variants: tuple[str, ...]) -> Iterator[Verdict]:
    """Runs each variant and compares it with the matching part of `base`, bit for bit.

    Differences that the subject does not promise to be absent come back as passing verdicts with a message.
    """
    for variant in variants:
        for problem, select in _variants(base, variant):
            with _order(problem.case) if variant == "program-order" else contextlib.nullcontext():
                outputs = execute(subject, problem, pattern=1).outputs
            for name, whole in base.outputs.items():
                found = first_difference(select(whole, name), outputs[name])
                if found is not None:
                    index, text = found
                    yield Verdict(
                        check="determinism",
                        status=Status.FAIL if promised(subject, variant) else Status.PASS,
                        output=name,
                        error={"repeat": "repeat", "program-order": "order"}.get(variant, "batch"),
                        index=index,
                        message=f"{name}{list(index)} is not bitwise the same ({variant}): {text}",
                    )


@contextlib.contextmanager
def _order(case: Case) -> Iterator[None]:
    """Interpreted programs in reverse, or for every other seed in an order drawn by it."""
    import numpy as np

    session = sys.modules["flashverify.interpreter.session"].active()
    seed, before = case.values.seed, session.order

    def order(count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        return np.arange(count)[::-1] if seed % 2 else np.random.default_rng(seed).permutation(count)

    session.order = order
    try:
        yield
    finally:
        session.order = before


def _variants(base: Execution, variant: str) -> Iterator[tuple[Problem, Select]]:
    problem, case = base.problem, base.problem.case
    group = case.heads_q // case.heads_kv
    if variant == "repeat" or (variant == "program-order" and base.watch is not None):
        yield problem, lambda tensor, _: tensor
    elif variant == "solo-sequence" and case.batch > 1:
        last = case.batch - 1
        yield _part(problem, last, 1, 0, case.heads_kv), lambda tensor, _: tensor[last:]
    elif variant == "solo-head" and case.heads_kv > 1 and case.batch > 0:
        last = case.heads_kv - 1
        yield (
            _part(problem, 0, case.batch, last, 1),
            lambda tensor, name: tensor[:, last:] if name in ("dk", "dv") else tensor[:, last * group :],
        )
    elif variant == "permuted" and (case.batch > 1 or case.heads_kv > 1) and not case.storage.expand:
        yield _permuted(problem), lambda tensor, name: _flip(tensor, 1 if name in ("dk", "dv") else group)


def _part(problem: Problem, first: int, count: int, head: int, heads: int) -> Problem:
    """Sequences `first ... first + count` and kv heads `head ... head + heads`, as views of the same memory."""
    case, mask = problem.case, problem.case.mask
    group = case.heads_q // case.heads_kv

    def cut(lengths: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return lengths if lengths is None else lengths[first : first + count]

    def rows(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else tensor[first : first + count, head * group : (head + heads) * group]

    part = dataclasses.replace(
        case,
        batch=count,
        heads_q=heads * group,
        heads_kv=heads,
        mask=dataclasses.replace(mask, key_lengths=cut(mask.key_lengths), query_lengths=cut(mask.query_lengths)),
        values=Values(regime=case.values.regime, seed=case.values.seed),
    )
    q = rows(problem.q)
    assert q is not None
    return dataclasses.replace(
        problem,
        case=part,
        q=q,
        k=problem.k[first : first + count, head : head + heads],
        v=problem.v[first : first + count, head : head + heads],
        do=rows(problem.do),
        dlse=rows(problem.dlse),
        key_lengths=None if problem.key_lengths is None else problem.key_lengths[first : first + count].clone(),
    )


def _permuted(problem: Problem) -> Problem:
    """Sequences and kv heads in reverse order, in new memory of the same strides."""
    case: Case = problem.case
    mask, group = case.mask, case.heads_q // case.heads_kv

    def reverse(lengths: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return None if lengths is None else lengths[::-1]

    def flip(tensor: torch.Tensor | None, size: int) -> torch.Tensor | None:
        return None if tensor is None else _like(tensor, _flip(tensor, size))

    q, k, v = flip(problem.q, group), flip(problem.k, 1), flip(problem.v, 1)
    assert q is not None
    assert k is not None
    assert v is not None
    return dataclasses.replace(
        problem,
        case=dataclasses.replace(
            case,
            mask=dataclasses.replace(
                mask, key_lengths=reverse(mask.key_lengths), query_lengths=reverse(mask.query_lengths)
            ),
            values=Values(regime=case.values.regime, seed=case.values.seed),
        ),
        q=q,
        k=k,
        v=v,
        do=flip(problem.do, group),
        dlse=flip(problem.dlse, group),
        key_lengths=None if problem.key_lengths is None else problem.key_lengths.flip(0),
    )


def _flip(tensor: torch.Tensor, size: int) -> torch.Tensor:
    """Sequences in reverse order, and heads in reverse order by blocks of `size`: the heads of one kv head stay together."""
    blocks = tensor.reshape(tensor.shape[0], tensor.shape[1] // size, size, *tensor.shape[2:])
    return blocks.flip(0, 1).flatten(1, 2)


def _like(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """`values` in memory of the strides and the alignment of `tensor`, on which compiled code may depend; stride 0 becomes dense."""
    import torch

    if 0 in tensor.stride():
        return values.contiguous()
    shift = tensor.data_ptr() % 16 // tensor.element_size()
    span = (
        1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        if tensor.numel()
        else 0
    )
    memory = torch.empty(span + shift, dtype=tensor.dtype, device=tensor.device)
    return memory.as_strided(tensor.shape, tensor.stride(), shift).copy_(values)
