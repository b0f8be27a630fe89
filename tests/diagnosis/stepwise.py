"""`planted.Plain` with a backward in steps that a defect changes; it shares no code with the diagnosis."""

from types import SimpleNamespace

import torch

from flashverify.subjects.interface import Gradients
from tests.diagnosis.planted import Plain


class Stepwise(Plain):
    """After each step the method `at_<step>` may change the names of `s`; `at_end` the gradients, float64, of the same names."""

    def _at(self, step, s):
        change = getattr(self, f"at_{step}", None)
        if change is not None:
            change(s)

    def forward(self, problem):
        result = super().forward(problem)
        self.forward_lse = result.lse.double()
        return result

    def backward(self, problem, forward):
        s = SimpleNamespace(problem=problem, scale=self.scale(problem), cap=problem.softcap)
        s.q, s.k, s.v, s.raw, s.z, s.see, s.keep, s.group = forward.saved
        s.do = torch.nan_to_num(problem.do.double(), 0.0, 0.0, 0.0)
        s.some = s.see.any(-1)
        s.o = torch.where(s.some.unsqueeze(-1), forward.o.double(), 0.0)
        s.lse = torch.where(s.some, forward.lse.double(), 0.0)
        s.dlse = torch.zeros_like(s.lse)
        if problem.dlse is not None:
            s.dlse = torch.where(s.some, torch.nan_to_num(problem.dlse.double(), 0.0, 0.0, 0.0), 0.0)
        s.sink = None if problem.sink is None else problem.sink.double().view(1, -1, 1)
        self._at("start", s)
        s.p = torch.where(s.see, (s.z - s.lse.unsqueeze(-1)).exp(), 0.0)
        s.weights = s.p
        self._at("weights", s)
        s.dp = (s.do @ s.v.mT) * s.keep
        s.delta = (s.do * s.o).sum(-1)
        self._at("rows", s)
        s.ds = s.p * (s.dp + (s.dlse - s.delta).unsqueeze(-1))
        self._at("ds", s)
        s.inner = s.ds if s.cap is None else s.ds * (1 - torch.tanh(s.raw / s.cap) ** 2)
        self._at("slope", s)
        s.dq = s.scale * (s.inner @ s.k)
        s.dk = s.scale * (s.inner.mT @ s.q)
        s.dv = (s.weights * s.keep).mT @ s.do
        self._at("heads", s)
        s.dk, s.dv = (x if x.shape[1] == problem.k.shape[1] else self.group_sum(x, s.group) for x in (s.dk, s.dv))
        s.dbias = s.dsink = None
        if problem.bias is not None:
            shared = [axis for axis in range(2) if problem.bias.shape[axis] == 1]
            s.dbias = s.ds.sum(shared, keepdim=True) if shared else s.ds
        if s.sink is not None:
            s.sink_weight = torch.where(s.some, (s.sink - s.lse).exp(), 0.0)
            self._at("sink", s)
            s.dsink = (s.sink_weight * (s.dlse - s.delta)).sum((0, 2))
        self._at("end", s)
        kind = problem.q.dtype
        return Gradients(
            s.dq.to(kind),
            s.dk.to(kind),
            s.dv.to(kind),
            s.delta.float(),
            dbias=None if s.dbias is None else s.dbias.to(kind),
            dsink=None if s.dsink is None else s.dsink.float(),
        )


def stepwise(**methods):
    """`Stepwise` with a change at some steps: functions of the names so far that assign to them."""
    return type("Stepped", (Stepwise,), {name: _method(change) for name, change in methods.items()})()


def _method(change):
    return lambda self, s: change(s)


def assign(**values):
    """A change that gives names new values, each a function of the names."""

    def change(s):
        for name, value in {name: value(s) for name, value in values.items()}.items():
            setattr(s, name, value)

    return change
