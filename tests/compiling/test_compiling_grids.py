"""A grid whose second or third axis grows with a size that the subject takes without limit: a GPU refuses such a launch."""

import dataclasses

import pytest
import torch
import triton
import triton.language as tl

from flashverify.case import Case, Grad
from flashverify.compiling.grids import grid_hazards
from flashverify.interpreter import faithful
from flashverify.subjects import Supports, has_gpu
from tests.checks.naive import make

PLAINEST = Case(seq_q=16, seq_k=16, heads_q=2, heads_kv=2, dim_qk=16, dim_v=16, dtype="fp16", grad=Grad(backward=False))


@triton.jit
def grown(x_ptr):
    tl.store(x_ptr, 0.0)


@triton.jit  # flashverify: grid-limit is declared, the batch is cut by the caller
def declared(x_ptr):
    tl.store(x_ptr, 0.0)


@pytest.fixture(scope="module")
def interpreter():
    if has_gpu():
        pytest.skip("kernels are compiled in this process")
    with faithful():
        yield


def hazards(grid, kernel=grown, **declaration):
    def run(_, case):
        kernel[grid(case)](torch.zeros(1))

    subject = make(supports=dataclasses.replace(Supports(backward=False), **declaration))
    return [(h.kind, h.what) for h in grid_hazards(subject, PLAINEST, run)]


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        (lambda c: (c.seq_q, c.heads_q, c.batch), ["axis y of the grid of grown grows with the query heads: with 65,536", "axis z of the grid of grown grows with the batch: with 65,536"]),
        (lambda c: (c.seq_q, c.batch * c.heads_q), ["axis y of the grid of grown grows with the batch: with 32,768", "axis y of the grid of grown grows with the query heads: with 65,536"]),
        (lambda c: lambda _: (1, -(-c.seq_q // 16)), ["axis y of the grid of grown grows with the query rows: with 1,048,"]),
        (lambda c: (1, -(-c.seq_q // 64)), []),
        (lambda c: (c.batch * c.heads_q * c.seq_q,), []),
    ],
    ids=["axes of their own", "one axis", "small tiles", "usual tiles", "first axis"],
)  # fmt: skip
def test_an_axis_is_named_with_the_size_from_which_on_a_launch_is_refused(interpreter, grid, said):
    found = hazards(grid)

    assert {kind for kind, _ in found} <= {"grid-limit"}
    assert len(found) == len(said)
    assert all(
        what.startswith(start) for (_, what), start in zip(sorted(found, key=lambda h: h[1]), sorted(said), strict=True)
    )


def test_what_the_subject_declares_not_to_take_is_no_hazard(interpreter):
    def also(case):
        return "batch" if case.batch > 1000 else None

    assert hazards(lambda c: (1, 1, c.batch), also=also) == []
    assert hazards(lambda c: (1, c.heads_q), heads_q=(2, 4, 8)) == []
    assert hazards(lambda c: (1, 1, c.batch), kernel=declared) == []


def test_the_bundled_kernels_use_the_first_axis_alone(interpreter):
    from flashverify.compiling.discover import _run
    from flashverify.subjects import load_subject

    assert grid_hazards(load_subject("bundled"), PLAINEST, _run) == ()
