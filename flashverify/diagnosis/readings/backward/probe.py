"""What the backward of a subject computes pair by pair: the weights of dV, and dS in the kernels of dQ, of dK and of the bias.

The first channels of Q and K hold numbers that make the logits. In the others Q is 0 where K is one-hot over keys, and K is 0 where Q is
one-hot over rows: the logits do not know of them, and there dQ is scale * dS, dK scale * dS^T. With dO one-hot over rows dV is P^T. Every
one is a number of its own, so that what is read of another head, row or key shows.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.positions import positions
from flashverify.case.memory.host import on_cpu
from flashverify.case.memory.materialize import materialize
from flashverify.case.values import philox
from flashverify.checks.passes.execution import execute
from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.backward_steps import steps_of
from flashverify.errors import UsageError
from flashverify.truth import inputs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene
    from flashverify.subjects.interface import Subject

__all__ = ["Effect", "ask", "asked_cases", "with_own_values"]

_REAL = 8
"""Channels that make the logits."""
_WIDE = (64, 128, 32)
"""Head dims in which few passes read all pairs."""
_PASSES = 24
"""Passes that one reading may take."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Effect:
    """What was read on one case.

    Attributes:
        scene: the problem that was asked; its outputs are those of the first pass.
        steps: its declared steps, from the subject's own O and LSE.
        read: by output: the sum over pairs that stands in each channel, `[B, Hq, Sq, Sk]` float64: of `dv` the weights, of `dq`, `dk` and
            `dbias` dS, each times its mark.
        marks: by output the marks, which broadcast to the pairs: those of the rows for `dv` and `dk`, of the keys for `dq`.
    """

    scene: Scene
    steps: Steps
    read: dict[str, Tensor]
    marks: dict[str, Tensor]


def asked_cases(subject: Subject, case: Case) -> Iterator[Case]:
    """Cases like `case` with usual values that can be asked, those of few passes first; one with its own head dims is the last."""
    logits_ = dataclasses.replace(case.logits, bias="full") if case.logits.bias else case.logits
    plain = dataclasses.replace(
        case,
        logits=logits_,
        grad=dataclasses.replace(case.grad, do="dense"),
        values=dataclasses.replace(case.values, regime="normal", edits=()),
        storage=dataclasses.replace(case.storage, expand=False, page_size=None, kept_pages=False),
    )
    found = []
    for dim_qk, dim_v in ((dim, dim) for dim in _WIDE):
        try:
            wide = dataclasses.replace(plain, dim_qk=dim_qk, dim_v=dim_v)
        except UsageError:
            continue
        if _passes(wide) <= _PASSES and subject.supports.refusal(wide) is None:
            found.append(wide)
            break
    if plain not in found and _passes(plain) <= _PASSES and subject.supports.refusal(plain) is None:
        found.append(plain)
    yield from found


def with_own_values(subject: Subject, case: Case) -> Case | None:
    """The first of `asked_cases` with the values of `case`; None where that is it already, or where there is none."""
    asked = next(asked_cases(subject, case), None)
    if asked is None or case.values.regime == asked.values.regime:
        return None
    return dataclasses.replace(asked, values=dataclasses.replace(case.values, edits=()))


def _passes(case: Case) -> int:
    free = case.dim_qk - _real(case)
    rows = case.heads_q // case.heads_kv * case.seq_q
    return -(-case.seq_k // free) - (-rows // free) - (-rows // case.dim_v)


def _real(case: Case) -> int:
    return min(_REAL, case.dim_qk // 2)


def ask(subject: Subject, like: Scene, case: Case, left: Callable[[], bool]) -> Effect | None:
    """Reads every pair of `case`; None where the time is over, or where what was read is not finite.

    Args:
        subject: the kernel under test.
        like: any run of it.
        case: one of `asked_cases`.
        left: whether there is time for another pass.

    Raises:
        Exception: whatever the subject raises.
    """
    passes = _Passes(subject, case, like)
    first = passes.run()
    if first is None:
        return None
    scene, steps = first
    group, real = scene.group, _real(case)
    free, cells = case.dim_qk - real, group * case.seq_q
    read: dict[str, Tensor] = {}
    for name, width, size in (("dq", free, case.seq_k), ("dk", free, cells), ("dv", case.dim_v, cells)):
        if name not in scene.outputs:
            continue
        parts = []
        for start in range(0, size, width):
            if not left():
                return None
            found = passes.outputs(name, start, width)
            if found is None:
                return None
            parts.append(found[..., real:] if name != "dv" else found)
        read[name] = torch.cat(parts, -1)[..., :size]
        if name != "dv":
            read[name] = read[name] / steps.scale
        if name != "dq":
            split = read[name].reshape(*read[name].shape[:3], group, case.seq_q)
            read[name] = split.permute(0, 1, 3, 4, 2).flatten(1, 2)
    if "dbias" in scene.outputs:
        read["dbias"] = scene.outputs["dbias"].expand(steps.p.shape)
    if not all(bool(torch.isfinite(x[_inside(scene, x)]).all()) for x in read.values()):
        return None
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    keys = passes.marks["k"].repeat_interleave(group, 1).unsqueeze(2)
    marks = {
        "dq": keys,
        "dk": passes.marks["q"].unsqueeze(-1),
        "dv": passes.marks["do"].unsqueeze(-1),
        "dbias": one,
    }
    return Effect(scene=scene, steps=steps, read=read, marks={name: marks[name] for name in read})


def _inside(scene: Scene, pairs: Tensor) -> Tensor:
    """Bool: pairs whose row and key are declared."""
    at = scene.at
    rows, keys = at.row < at.rows, at.key < at.key_limit
    return (rows[:, None, :, None] & keys[:, None, None, :]).expand(pairs.shape)


class _Passes:
    """One problem, asked again and again with other values where the logits do not know of them."""

    def __init__(self, subject: Subject, case: Case, like: Scene) -> None:
        self.subject, self.case, self._like = subject, case, like
        self.real = _real(case)
        problem, self._arena = materialize(case, subject.device())
        self._given = problem
        in_real = (torch.arange(case.dim_qk) < self.real).double()
        assert problem.do is not None
        q, k, do = (on_cpu(x).double().nan_to_num(0.0, 0.0, 0.0) for x in (problem.q, problem.k, problem.do))
        self._q = q * in_real * (case.dim_qk / self.real) ** 0.5
        self._k, self._do = k * in_real, do
        shapes = {"q": case.shape_q[:3], "k": case.shape_k[:3], "do": case.shape_o[:3]}
        self.marks = {name: _marks(case, name, shape) for name, shape in shapes.items()}

    def run(self) -> tuple[Scene, Steps] | None:
        """The problem without any mark, and its declared steps; None where O or the LSE of a row that sees a key is not finite."""
        problem, outputs = self._run(self._q, self._k, self._do)
        inputs = inputs_of(problem)[0].dense()
        z = logits(inputs)
        some = (z != -torch.inf).any(-1)
        lse = z.logsumexp(-1)
        if inputs.sink is not None:
            lse = torch.where(some, torch.logaddexp(lse, inputs.sink.double().view(1, -1, 1)), lse)
        scene = dataclasses.replace(
            self._like, problem=problem, inputs=inputs, outputs=outputs, at=positions(self.case), known={}, memo={}
        )
        if "lse" in outputs and self.subject.contract.lse_base is not None:
            lse = outputs["lse"] * scene.unit
        o = outputs["o"]
        if not (bool(torch.isfinite(o[some]).all()) and bool(torch.isfinite(lse[some]).all())):
            return None
        o = o.masked_fill(~some.unsqueeze(-1), 0.0)
        scene = dataclasses.replace(scene, o=o, lse=lse.masked_fill(~some, -torch.inf))
        return scene, steps_of(inputs, o, lse)

    def outputs(self, name: str, start: int, width: int) -> Tensor | None:
        """The gradient `name` with marks at the cells `start ... start + width - 1`, float64; None where it is missing."""
        case, group = self.case, self.case.heads_q // self.case.heads_kv
        q, k, do = self._q, self._k, self._do
        if name == "dq":
            at = _one_hot(torch.arange(case.seq_k).view(1, 1, -1) - start, width)
            k = k.clone()
            k[..., self.real :] = self.marks["k"].unsqueeze(-1) * at
        else:
            member = torch.arange(case.heads_q).view(-1, 1) % group
            at = _one_hot((member * case.seq_q + torch.arange(case.seq_q)).unsqueeze(0) - start, width)
            if name == "dk":
                q = q.clone()
                q[..., self.real :] = self.marks["q"].unsqueeze(-1) * at
            else:
                do = self.marks["do"].unsqueeze(-1) * at
        return self._run(q, k, do)[1].get(name)

    def _run(self, q: Tensor, k: Tensor, do: Tensor) -> tuple[Problem, dict[str, Tensor]]:
        case, problem = self.case, self._given
        lengths = (
            (problem.q, q, case.rows_inside),
            (problem.k, k, case.keys_inside),
            (problem.do, do, case.rows_inside),
        )
        for tensor, values, inside in lengths:
            assert tensor is not None
            for b in range(case.batch):
                count = tensor.shape[2] if inside is None else inside[b]
                tensor[b, :, :count] = values[b, :, :count].to(tensor.dtype).to(tensor.device)
        found = execute(self.subject, problem).outputs
        return on_cpu(problem), {name: x.detach().cpu().double() for name, x in found.items()}


def _one_hot(cell: Tensor, width: int) -> Tensor:
    """1 in the channel of its cell, `[..., width]`; 0 everywhere where the cell is another chunk's."""
    return (cell.unsqueeze(-1) == torch.arange(width)).double()


def _marks(case: Case, name: str, shape: tuple[int, ...]) -> Tensor:
    """Numbers from 1 to 2 that every format holds, one for each row or key of each head."""
    return 1.0 + torch.from_numpy(philox.integers(case.values.seed, f"marks/{name}", shape, 0, 63)) / 64
