"""The table of outputs against what subjects, oracles and bounds return, and against what a change of one row changes."""

import dataclasses

import pytest
import torch

from flashverify import parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.checks.passes.execution import execute
from flashverify.numerics import BackwardBounds, ForwardBounds
from flashverify.outputs import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENTS,
    KERNELS,
    OUTPUTS,
    expected_shapes,
    output,
    pinned_rows,
    rows_reach,
)
from flashverify.subjects.interface import Contract, Forward, Gradients
from flashverify.truth import float64_values, inputs_of
from tests.diagnosis.planted import Plain

SHARED = {"full": "bias=full relative_bias=4,3,both", "head": "bias=head", "shared": "bias=shared", "none": ""}
SHAPE = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=3 seq_k=5 dim_qk=8 dim_v=16 dtype=fp32 sink=yes seed=3"


def problem(bias):
    return materialize(parse_case(f"{SHAPE} {SHARED[bias]}"), "cpu")[0]


def fields(kind):
    return {field.name for field in dataclasses.fields(kind)}


def test_every_output_is_a_field_of_what_subjects_and_bounds_return():
    assert set(FORWARD) <= fields(Forward)
    assert set(BACKWARD) == fields(Gradients)
    assert set(FORWARD) <= fields(ForwardBounds)
    assert set(BACKWARD) <= fields(BackwardBounds)
    assert {name for names in KERNELS for name in names} == set(OUTPUTS)


@pytest.mark.parametrize("bias", SHARED)
def test_shapes_dtypes_and_stages_are_those_of_a_right_subject(bias):
    class All(Plain):
        contract = Contract(gradients=frozenset(BACKWARD))

    given = problem(bias)
    found = execute(All(), given)
    assert found.missing == ()
    assert {name: tuple(x.shape) for name, x in found.outputs.items()} == expected_shapes(given)
    for name, x in found.outputs.items():
        assert x.dim() == len(output(name).axes), name


@pytest.mark.parametrize("bias", SHARED)
def test_a_row_reaches_what_changes_with_it_and_nothing_else(bias):
    given = problem(bias)
    inputs = inputs_of(given)[0]
    before = float64_values(inputs)
    row = torch.zeros(2, 4, 3, dtype=torch.bool)
    row[1, 2, 1] = True
    after = float64_values(dataclasses.replace(inputs, do=inputs.do + row.unsqueeze(-1).double()))
    reached = rows_reach(row, given)
    assert reached.keys() == before.keys() - set(FORWARD)
    for name, mask in reached.items():
        changed = before[name] != after[name]
        # an element may change by less than its rounding, so a channel or a key of it stands for them all
        assert not bool((changed & ~mask).any()), name
        if mask.dim() == changed.dim():
            for axis, size in enumerate(mask.shape):
                changed = changed.any(axis, keepdim=True) if size == 1 else changed
        assert torch.equal(changed, mask), name


def test_rows_without_keys_hold_what_the_contract_says():
    empty = torch.tensor([[[True, False, False]]])
    found = pinned_rows(empty, empty_row_o=7.0, empty_row_lse=-3.0)
    assert {name: value for name, (_, value) in found.items()} == {"o": 7.0, "lse": -3.0, "delta": 0.0, "dq": 0.0}
    assert {name: mask.dim() for name, (mask, _) in found.items()} == {"o": 4, "lse": 3, "delta": 3, "dq": 4}


def test_a_table_per_head_is_reached_by_every_row_of_the_head():
    given, spec = problem("full"), output("drelative_bias")
    row = torch.zeros(2, 4, 3, dtype=torch.bool)
    row[0, 3, 2] = True
    assert rows_reach(row, given)["drelative_bias"].tolist() == [[False], [False], [False], [True]]
    assert spec.sums_pairs(given)
    assert (spec.along, spec.channels, spec.axis("batch"), spec.dtype_of("bf16")) == (None, False, None, "fp32")


def test_what_is_asked_for_by_itself_is_the_gradient_of_an_input():
    given = problem("full")
    for name in INPUT_GRADIENTS:
        tensor = getattr(given, output(name).gradient_of)
        assert expected_shapes(given)[name] == tuple(tensor.shape)
