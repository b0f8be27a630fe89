"""Defects of the planted implementation that show under a condition, or at a place inside a case, only."""

import dataclasses

import torch

from flashverify.subjects.interface import Forward
from tests.diagnosis.planted import Plain, planted


def when(condition, **methods):
    """A subject that has these methods on the problems for which `condition` holds and is right on the others."""
    wrong = planted(**methods)

    class Conditional(Plain):
        def forward(self, problem):
            return wrong.forward(problem) if condition(problem) else Plain.forward(self, problem)

        def backward(self, problem, forward):
            return wrong.backward(problem, forward) if condition(problem) else Plain.backward(self, problem, forward)

    return Conditional()


def where(place, **methods):
    """A subject whose mask is that of these methods for the pairs at which `place(problem, b, h, i, j)` holds."""
    wrong = planted(**methods)

    class Placed(Plain):
        def see(self, problem):
            right = Plain.see(self, problem)
            b, h, i, j = (
                torch.arange(size).view([-1 if axis == n else 1 for n in range(4)])
                for axis, size in enumerate(right.shape)
            )
            return torch.where(place(problem, b, h, i, j), wrong.see(problem), right)

    return Placed()


def rows_where(place, **methods):
    """A subject whose O and LSE are those of these methods in the rows at which `place(problem, b, h, i)` holds."""
    wrong = planted(**methods)

    class Placed(Plain):
        def forward(self, problem):
            right, other = Plain.forward(self, problem), wrong.forward(problem)
            b, h, i = (
                torch.arange(size).view([-1 if axis == n else 1 for n in range(3)])
                for axis, size in enumerate(right.lse.shape)
            )
            inside = place(problem, b, h, i).expand(right.lse.shape)
            o = torch.where(inside.unsqueeze(-1), other.o, right.o)
            return Forward(o, torch.where(inside, other.lse, right.lse), right.saved)

    return Placed()


def gradient_where(place, name, **methods):
    """A subject whose gradient `name` is that of these methods at the elements at which `place(b, h, n, channel)` holds."""
    wrong = planted(**methods)

    class Placed(Plain):
        def backward(self, problem, forward):
            right, other = Plain.backward(self, problem, forward), wrong.backward(problem, forward)
            mine = getattr(right, name)
            axes = (
                torch.arange(size).view([-1 if axis == n else 1 for n in range(4)])
                for axis, size in enumerate(mine.shape)
            )
            mixed = torch.where(place(*axes).expand(mine.shape), getattr(other, name), mine)
            return dataclasses.replace(right, **{name: mixed})

    return Placed()


def size(text, **sizes):
    words = dict(word.split("=") for word in text.split()[1:]) | {k: str(v) for k, v in sizes.items()}
    return "fv1 " + " ".join(f"{k}={v}" for k, v in words.items())


def group(p):
    return p.q.shape[1] // p.k.shape[1]


def products(p):
    return p.scale * p.q.double() @ p.k.double().repeat_interleave(group(p), 1).mT
