"""Plain functions of every kind that a subject has; each adds 1 to the number that it is given."""

from __future__ import annotations

import os

import torch


def plain(x: int) -> int:
    return x + 1


class Holder:
    def method(self, x: int) -> int:
        return x + 1

    @classmethod
    def of_class(cls, x: int) -> int:
        return x + 1


def outer(by: int):
    """A function with a free variable."""

    def inner(x: int) -> int:
        moved = x + by
        return +moved

    return inner


closed, other = outer(1), outer(10)


class Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + 1

    @staticmethod
    def backward(ctx, grad):
        return grad + 1


def annotated(x: NoSuchName) -> NoSuchName:  # noqa: F821
    y: NoSuchName = x + 1  # noqa: F821
    return y


def calling(x: int) -> int:
    first = plain(x)
    return plain(first)


def counting(x: int) -> int:
    while x < 10:
        x = x + 1
    return x


def reading(path: str) -> int:
    with open(path) as stream:
        return len(stream.read())


def removing(path: str) -> int:
    os.remove(path)
    return 1
