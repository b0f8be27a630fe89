"""Attention in float64 in which a call has something of another one, whatever its shapes; each a subject of its own."""

import dataclasses

import torch

from flashverify.numerics import Form
from flashverify.subjects.interface import Contract, Supports
from flashverify_oracles import dropout_keep
from tests.diagnosis.planted import Plain

SUPPORTS = Supports(dtypes=("fp32",), layouts=("bhsd",), masks=("causal", "window", "key_lengths"), logits=("softcap",))
"""Narrow, for a diagnosis calls the case after one of each kind that is accepted."""


class Following(Plain):
    """Right, and remembers the last call."""

    name = "following"
    contract = Contract(lse_base="e", deterministic=True)
    supports = SUPPORTS

    def __init__(self):
        self.last = None
        self.calls = 0

    def changed(self, problem, last):
        """The problem that is computed after the call `last`."""
        return problem

    def forward(self, problem):
        self.calls += 1
        last, self.last = self.last or problem, problem
        return super().forward(self.changed(problem, last))


class WindowOfTheCallBefore(Following):
    def changed(self, problem, last):
        window = last.case.mask.window if problem.case.mask.window and last.case.mask.window else None
        mask = dataclasses.replace(problem.case.mask, window=window or problem.case.mask.window)
        return dataclasses.replace(problem, case=dataclasses.replace(problem.case, mask=mask))


class CapThatStays(Following):
    kept_cap = None

    def changed(self, problem, last):
        self.kept_cap = problem.case.logits.softcap or self.kept_cap
        logits = dataclasses.replace(problem.case.logits, softcap=self.kept_cap)
        return dataclasses.replace(problem, case=dataclasses.replace(problem.case, logits=logits))


class CausalThatStays(Following):
    kept = None

    def changed(self, problem, last):
        self.kept = problem.causal or self.kept
        mask = dataclasses.replace(problem.case.mask, causal=self.kept)
        return dataclasses.replace(problem, case=dataclasses.replace(problem.case, mask=mask))


class EveryThird(Following):
    def output(self, o, *_):
        return o * (1 + (self.calls % 3 == 0))


class UnknownAfterOtherRows(Following):
    """O is wrong in a way without a name after a call with other rows."""

    def forward(self, problem):
        last = self.last or problem
        found = super().forward(problem)
        wrong = last.q.shape[2] != problem.q.shape[2]
        return dataclasses.replace(found, o=found.o * (1 + 0.37 * wrong * torch.arange(found.o.shape[-1]).sin() ** 2))


class Splits(Following):
    """Partial results by pieces of the keys, of which there are as many as the call before had, or one of it left over is added."""

    supports = dataclasses.replace(SUPPORTS, launch=(("n_splits", (1, 2, 4)),))
    left_over = False
    most = None

    def form(self, case):
        return Form(block_n=4, n_splits=self.splits(case))

    def splits(self, case):
        return dict(case.launch).get("n_splits", 4)

    def forward(self, problem):
        last = self.last or problem
        self.now, before = self.splits(problem.case), self.splits(last.case)
        self.few = self.now if self.left_over else before
        return super().forward(problem)

    def drop_keys(self, see):
        keys = see.shape[-1]
        tiles = -(-keys // 4)
        piece = sum((torch.arange(keys) // 4 >= tiles * s // self.now).long() for s in range(1, self.now))
        return see & (piece < self.few) if self.now > self.few else see


class SeedOfTheFirst(Plain):
    """Dropout is drawn by the seed of the first call with the same key, and by its own offset or that of the first too."""

    name = "seed"
    contract = Contract(lse_base="e", deterministic=True)

    def __init__(self, key=lambda problem: (), *, alone=True):
        self.key, self.alone, self.memory = key, alone, {}

    def kept(self, problem, keep):
        first = self.memory.setdefault(self.key(problem), (problem.dropout_seed, problem.dropout_offset))
        (b, h, n, _), m = problem.case.shape_q, problem.case.seq_k
        return dropout_keep(
            seed=first[0],
            offset=problem.dropout_offset if self.alone else first[1],
            p=problem.case.dropout,
            heads=h,
            sequence=torch.arange(b)[:, None].expand(b, n),
            row=torch.arange(n).expand(b, -1),
            key=torch.arange(m).expand(b, -1),
        ).double()
