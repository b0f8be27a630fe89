"""The walk-through's kernels: right where masked lanes happen to hold 0, and only there."""

import numpy as np
import pytest

from flashverify.case import parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.interpreter import Layer, active, session
from flashverify.interpreter.hooks import interpreting
from flashverify.subjects import load_subject

CASE = "fv1 seq_q=50 seq_k=50 heads_q=2 heads_kv=2 layout=bshd"


@pytest.fixture(autouse=True)
def _needs_the_interpreter():
    if not interpreting() or active() is not None:
        pytest.skip("needs an interpreter without a session")


class UndefinedIsNaN(Layer):
    """Masked lanes of a load without a fill hold NaN."""

    def create_masked_load(self, ptrs, mask, other, *rest, **options):
        loaded = super().create_masked_load(ptrs, mask, other, *rest, **options)
        if other is None and not np.issubdtype(loaded.data.dtype, np.integer):
            keep = mask.data if hasattr(mask, "data") and not isinstance(mask, np.ndarray) else mask
            loaded.data = np.where(keep, loaded.data, np.array(np.nan, loaded.data.dtype))
        return loaded


def outputs(name, *mixins, case=CASE):
    subject = load_subject(name)
    problem, _arena = materialize(parse_case(case))
    with session(*mixins):
        forward = subject.forward(problem)
        gradients = subject.backward(problem, forward)
    found = {"o": forward.o, "lse": forward.lse, "dq": gradients.dq, "dk": gradients.dk, "dv": gradients.dv}
    return {name: tensor.clone() for name, tensor in found.items()}


@pytest.mark.parametrize("case", [CASE, "fv1 seq_q=33 seq_k=33 layout=bshd dtype=bf16 scale=-0.5"])
def test_the_fill_changes_no_bit_where_undefined_lanes_are_0(case):
    plain, filled = (outputs(name, case=case) for name in ("seed-document", "seed-document-filled"))
    assert all(plain[name].equal(filled[name]) for name in plain)


def test_undefined_lanes_reach_every_output_but_the_lse():
    found = outputs("seed-document", UndefinedIsNaN)
    assert {name for name, tensor in found.items() if tensor.isnan().any()} == {"o", "dq", "dk", "dv"}


def test_filled_loads_depend_on_no_undefined_lane():
    found, plain = outputs("seed-document-filled", UndefinedIsNaN), outputs("seed-document-filled")
    assert all(found[name].equal(plain[name]) for name in plain)


def test_without_a_partial_tile_nothing_is_undefined():
    found = outputs("seed-document", UndefinedIsNaN, case="fv1 seq_q=64 seq_k=64 layout=bshd")
    assert not any(tensor.isnan().any() for tensor in found.values())


def test_cases_outside_its_layout_are_refused():
    subject = load_subject("seed-document")
    for text in ("batch=2 layout=bshd", "seq_q=3 seq_k=4 layout=bshd", "dim_qk=48 dim_v=48 layout=bshd"):
        assert subject.supports.refusal(parse_case(f"fv1 {text}")) is not None
    assert subject.supports.refusal(parse_case(CASE)) is None
