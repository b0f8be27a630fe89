"""The directed part of a bound, which statistics take."""

import torch

from flashverify.case.case import Case
from flashverify.case.memory.materialize import materialize
from flashverify.numerics import Form
from flashverify.numerics.forward_parts import Errors
from flashverify.numerics.gradients import Cores
from flashverify.truth import Truth, inputs_of

CASE = Case(heads_q=2, heads_kv=1, seq_q=9, seq_k=21, dim_qk=16, dim_v=16, dtype="fp16")


def bounds():
    truth = Truth(inputs_of(materialize(CASE)[0])[0], CASE.dtype, Form())
    directed = truth.directed()
    o, lse = (truth.forward()[name][0] for name in ("o", "lse"))
    return {name: bound for name, (_, bound) in (directed.forward() | directed.conditional(o, lse)).items()}


def test_the_oracles_own_error_is_no_part_of_it(monkeypatch):
    sharp = bounds()
    monkeypatch.setattr(Errors, "without_errors", lambda self: self)
    monkeypatch.setattr(Cores, "without_errors", lambda self: self)
    wide = bounds()

    assert {"o", "lse", "dq", "dk", "dv"} <= sharp.keys() == wide.keys()
    for name, found in sharp.items():
        assert torch.equal(found.bound, wide[name].bound), name
        assert bool((found.self_error <= wide[name].self_error).all()), name
    assert bool((sharp["dv"].self_error < wide["dv"].self_error).any())
