"""Draws of dropout at other numbers than the declared seed and offset: further by as much in every call, as where launches are counted."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from flashverify.case.case import Case
from flashverify.case.values.dropout_words import philox4x32
from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.backward_steps import steps_of
from flashverify.diagnosis.saying import sentence_of
from flashverify.diagnosis.state.calling import repeated
from flashverify.judge.record import Diagnosis
from flashverify.outputs import OUTPUTS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from flashverify.diagnosis.clock import End
    from flashverify.diagnosis.observation import Scene
    from flashverify.subjects.interface import Subject

__all__ = ["advancing_draws"]

_KEYS, _DIM = 48, 16
_FARTHEST = 1 << 15
"""Numbers behind the declared one that are tried: launches of a process so far."""
_AT_ONCE = 1 << 12
_CALLS = 3
_SEEDS = (901, 902)
_NEAR = 1e-4
"""Share of the magnitudes that an output may be off."""
_FEW = 16
"""Elements of an output that are asked first."""
_READ = ("o", "dq", "dk", "dv")
_NAMES = {"o": "O", "dq": "dQ", "dk": "dK", "dv": "dV"}
_WITH_ARTICLE = {"offset": "an offset", "seed": "a seed"}
_MASK = 2**32 - 1


class _Linear(NamedTuple):
    """What an output of one row is of the kept keys: their sum of `each`, and `rest`; `[Sk, width]` and `[width]`."""

    each: Tensor
    rest: Tensor


class _Found(NamedTuple):
    """By how much the number is off in each call, of one kind and one output."""

    kind: str
    output: str
    numbers: tuple[int, ...]

    @property
    def step(self) -> int | None:
        """How much further each call is; None where that changes."""
        steps = {late - early for early, late in zip(self.numbers, self.numbers[1:], strict=False)}
        return steps.pop() if len(steps) == 1 else None


def advancing_draws(subject: Subject, case: Case, end: End) -> Diagnosis | None:
    """Says so where every call of a plain problem draws at a number that grows by as much.

    Args:
        subject: the kernel under test.
        case: where it fails.
        end: when nothing more is tried.
    """
    if not case.dropout:
        return None
    told: list[list[_Found]] = []
    for seed in _SEEDS:
        plain = _plain(case, seed)
        if end.over or subject.supports.refusal(plain) is not None:
            return None
        found = _off(repeated(subject, plain, _CALLS), end)
        if not found:
            return None
        told.append(found)
    first, second = ({(each.kind, each.output): each.step for each in found} for found in told)
    same = {key: step for key, step in first.items() if second.get(key) == step and step}
    kinds = {kind for kind, _ in same}
    steps = set(same.values())
    if len(kinds) != 1 or len(steps) != 1:
        return None
    kind, step = kinds.pop(), steps.pop()
    numbers = {each.output: each.numbers[0] for each in told[0] if (each.kind, each.output) in same}
    said = _words(kind, step, numbers)
    words = sentence_of(said)
    evidence = f"{_CALLS * len(_SEEDS)} calls of two problems draw so, every pair of them."
    return Diagnosis("", words, evidence=evidence, reading=words)


def _words(kind: str, step: int, numbers: dict[str, int]) -> str:
    names = [_NAMES[name] for name in OUTPUTS if name in numbers]
    who = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    words = f"dropout is drawn in {who} at {_WITH_ARTICLE[kind]} that is {step} higher in every call than in the call before, whatever is declared"
    return words + (
        "; each output has a number of its own: launches are counted" if len(set(numbers.values())) > 1 else ""
    )


def _plain(case: Case, seed: int) -> Case:
    """One row of one head, whose outputs tell every draw."""
    values = dataclasses.replace(case.values, regime="normal", seed=seed, edits=())
    grad = dataclasses.replace(case.grad, do="dense")
    return Case(
        seq_q=1, seq_k=_KEYS, dim_qk=_DIM, dim_v=_DIM, dtype="fp32", dropout=case.dropout, values=values, grad=grad
    )


def _off(scenes: list[Scene], end: End) -> list[_Found]:
    """Outputs that change from call to call, with the numbers at which they are drawn."""
    found: list[_Found] = []
    if len(scenes) != _CALLS:
        return found
    for output in _READ:
        if output not in scenes[-1].failures or torch.equal(scenes[0].outputs[output], scenes[-1].outputs[output]):
            continue
        for kind in ("offset", "seed"):
            numbers: list[int] = []
            for scene in scenes:
                if (number := _number(scene, kind, output, end)) is None:
                    break
                numbers.append(number)
            if len(numbers) == len(scenes):
                found.append(_Found(kind, output, tuple(numbers)))
                break
    return found


def _number(scene: Scene, kind: str, output: str, end: End) -> int | None:
    """How much higher the number is under which the draws give an output; None where that is not one of those tried."""
    linear = _linear(scene, output)
    if linear is None or end.over:
        return None
    got = scene.outputs[output].flatten()
    near = _NEAR * (linear.each.abs().sum(0) + linear.rest.abs()) + 1e-30
    every = torch.arange(len(got))
    few = every[:: -(-len(got) // _FEW)]
    for start in range(0, _FARTHEST, _AT_ONCE):
        kept = torch.from_numpy(_kept(scene, kind, np.arange(start, start + _AT_ONCE, dtype=np.uint64)))
        left = torch.arange(_AT_ONCE)
        for some in (few, every):  # a few elements tell nearly all numbers
            left = left[
                ((kept[left] @ linear.each[:, some] + linear.rest[some] - got[some]).abs() <= near[some]).all(-1)
            ]
        if len(left):
            return start + int(left[0])
    return None


def _kept(scene: Scene, kind: str, more: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The kept keys of the only row under further numbers, `[len(more), Sk]`."""
    p, keys = scene.problem, scene.case.seq_k
    quads = np.arange(-(-keys // 4), dtype=np.uint64)
    none = np.zeros((len(more), len(quads)), dtype=np.uint64)
    seed, offset = np.uint64(p.dropout_seed) + none, np.uint64(p.dropout_offset) + none
    if kind == "offset":
        offset = (offset + more[:, None]) & np.uint64(_MASK)
    else:
        seed = seed + more[:, None]
    words = philox4x32((quads + none, none, none, offset), (seed & np.uint64(_MASK), seed >> np.uint64(32)))  # type: ignore[arg-type]
    limit = int(scene.case.dropout * 2**32)
    return (np.stack(words, -1).reshape(len(more), -1)[:, :keys] >= limit).astype(np.float64)


def _linear(scene: Scene, output: str) -> _Linear | None:
    if scene.o is None or scene.lse is None or scene.inputs.do is None:
        return None if output != "o" or scene.lse is None else _of_o(scene)
    if output == "o":
        return _of_o(scene)
    s = steps_of(scene.inputs, scene.o, scene.lse)
    p, share = s.p[0, 0, 0], 1 / (1 - scene.case.dropout)
    rows = (s.dlse - s.delta)[0, 0, 0]
    dp = (s.do @ s.v.mT)[0, 0, 0]
    keys = len(p)
    if output == "dv":
        each, rest = (p * share)[:, None] * s.do[0, 0], torch.zeros(keys, s.do.shape[3], dtype=p.dtype)
    elif output == "dk":
        each, rest = (s.scale * p * dp * share)[:, None] * s.q[0, 0], (s.scale * p * rows)[:, None] * s.q[0, 0]
    else:
        return _Linear((s.scale * p * dp * share)[:, None] * s.k[0, 0], s.scale * (p * rows) @ s.k[0, 0])
    return _Linear(
        torch.stack([each[n][None] * (torch.arange(keys) == n)[:, None] for n in range(keys)]).flatten(1),
        rest.flatten(),
    )


def _of_o(scene: Scene) -> _Linear:
    p = logits(scene.inputs).softmax(-1)[0, 0, 0]
    v = scene.inputs.v.double()[0, 0]
    return _Linear((p / (1 - scene.case.dropout))[:, None] * v, torch.zeros(v.shape[1], dtype=v.dtype))
