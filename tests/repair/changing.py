"""A subject in plain torch that is as wrong as a test says, and edits of it that are blocks."""

import contextlib
import math

import torch

from flashverify.case.text import parse_case
from flashverify.subjects import Contract, FunctionSubject, Supports

CASE = parse_case("fv1 seq_q=6 seq_k=9 dim_qk=8 dim_v=8 dtype=fp32 causal=top-left backward=no")


class Changing:
    """Attention with a causal mask.

    Attributes:
        shift: of the diagonal, a function of the case.
        raising: whether it raises, a function of the case.
        begun: what it does first, with the problem.
    """

    def __init__(self, shift=lambda _: 1):
        self.shift, self.raising = shift, lambda _: False
        self.begun = lambda _: None
        self.asked = []
        self.subject = FunctionSubject(
            function=self,
            name="changing",
            where="cpu",
            supports=Supports(dtypes=("fp32",), masks=("causal",), causal=("top-left",), gqa=False, backward=False),
            contract=Contract(gradients=frozenset()),
        )

    def __call__(self, p):
        self.asked.append(p.case)
        if self.raising(p.case):
            raise ArithmeticError("no such case")
        self.begun(p)
        s = (p.q @ p.k.mT) * p.scale
        if p.causal is not None:
            rows, keys = torch.arange(p.case.seq_q)[:, None], torch.arange(p.case.seq_k)
            s = torch.where(keys <= rows + self.shift(p.case), s, -math.inf)
        return torch.softmax(s, -1) @ p.v, torch.logsumexp(s, -1)

    @contextlib.contextmanager
    def as_if(self, **changed):
        """An edit."""
        before = {name: getattr(self, name) for name in changed}
        vars(self).update(changed)
        try:
            yield
        finally:
            vars(self).update(before)
