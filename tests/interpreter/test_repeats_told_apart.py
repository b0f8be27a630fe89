"""What tells launches apart: one with another argument, grid, layout or meaning of a name is not taken for one that ran."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from flashverify.interpreter import Sanitizer, faithful
from flashverify.interpreter import repeats as rules
from flashverify.interpreter.layer import Launch
from flashverify.interpreter.repeats import Launches
from tests.interpreter import launched_again
from tests.interpreter.launched_again import N, by_global, doubled, inputs, launch, scaled


@pytest.fixture
def session():
    with faithful(Sanitizer) as opened:
        yield opened


def test_another_argument_grid_or_layout_has_the_launch_run(session):
    known, x = Launches(), torch.arange(4.0 * N)
    launch(session, scaled, x, torch.zeros(4 * N), N, 2.0, known=known)

    def runs(x, out, *more, **options):
        return launch(session, scaled, x, out, *more, known=known, **options)[0]

    out = torch.zeros(4 * N)
    assert not runs(x, out, N, 2.0)
    assert runs(x, out, N, 3.0)
    assert runs(x, out, N, 2)
    assert runs(x, out, N - 1, 2.0)
    assert runs(x, out, N, 2.0, grid=2)
    assert runs(x, out.double(), N, 2.0)
    assert runs(x, torch.zeros(5 * N), N, 2.0)
    assert runs(x, torch.zeros(8 * N)[::2], N, 2.0)
    assert runs(torch.cat([x, x])[4 * N :], out, N, 2.0)


def test_floats_are_told_apart_by_their_bits(session):
    known, x = Launches(), torch.arange(float(N))
    launch(session, scaled, x, torch.zeros(N), N, 0.0, known=known)
    out = torch.zeros(N)

    assert launch(session, scaled, x, out, N, -0.0, known=known)[0]
    assert bool(out.signbit().all())
    for _ in range(2):
        assert launch(session, scaled, x, out, N, float("nan"), known=known)[0]


def test_a_name_that_means_something_else_has_the_launch_run(session, monkeypatch):
    known, x, out = Launches(), inputs(), torch.zeros(2 * N)
    launch(session, by_global, x, out, known=known)
    assert not launch(session, by_global, x, out, known=known)[0]

    monkeypatch.setattr(launched_again, "FACTOR", tl.constexpr(3.0))
    launch(session, doubled, x, torch.zeros(2 * N), known=None)  # nobody takes the change for news of its own

    assert launch(session, by_global, x, out, known=known)[0]
    assert out[1] == 6.0


def test_a_kernel_with_a_closure_runs():
    power = 2.0

    def function():
        return power

    assert rules.key_of(function, launch_of(x=1), ()) is None
    assert rules.key_of(doubled.fn, launch_of(x=1), ()) is not None


class Pair(NamedTuple):
    first: int
    second: int


class Other(NamedTuple):
    first: int
    second: int


class Inner(NamedTuple):
    ptr: int


def launch_of(grid=(1, 1, 1), **arguments):
    return Launch("kernel", "", arguments, arguments, grid, ())


def test_keys_tell_launches_apart_that_do_other_things():
    memory = np.zeros(64, np.float32)
    one, other = torch.zeros(4), torch.zeros(4)
    at = [torch.from_numpy(memory[n : n + 4]) for n in (0, 1)]
    keys = [
        rules.key_of(function, launch, ())
        for function, launch in [
            (doubled.fn, launch_of(x=1)),
            (scaled.fn, launch_of(x=1)),
            (doubled.fn, launch_of(x=True)),
            (doubled.fn, launch_of(x=1, grid=(2, 1, 1))),
            (doubled.fn, launch_of(x=one, out=one)),
            (doubled.fn, launch_of(x=one, out=other)),
            (doubled.fn, launch_of(x=at[0])),
            (doubled.fn, launch_of(x=at[1])),
            (doubled.fn, launch_of(x=(1, 2))),
            (doubled.fn, launch_of(x=Pair(1, 2))),
            (doubled.fn, launch_of(x=Other(1, 2))),
            (doubled.fn, launch_of(x=Inner(1))),
            (doubled.fn, launch_of(x=())),
            (doubled.fn, launch_of(x=((),))),
            (doubled.fn, launch_of(x=(1, (2,)))),
            (doubled.fn, launch_of(x=((1,), 2))),
            (doubled.fn, launch_of(x=1, out=2)),
            (doubled.fn, launch_of(out=1, x=2)),
        ]
    ]

    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_an_argument_of_an_unknown_kind_has_the_launch_run():
    block = TensorDescriptor(torch.zeros(1, N), [1, N], [N, 1], [1, N])

    assert rules.key_of(doubled.fn, launch_of(x=1, by=2.0, kind=tl.float32, n=None), ()) is not None
    for unknown in (object(), doubled, block, (1, block), np.float32(1.0)):
        assert rules.key_of(doubled.fn, launch_of(x=unknown), ()) is None
