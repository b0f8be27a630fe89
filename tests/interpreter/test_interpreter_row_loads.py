"""Loads of whole rows of what a launch may write: the same reports as lane by lane."""

import pytest
import torch
import triton
import triton.language as tl

from flashverify.interpreter import Sanitizer, session, watch
from flashverify.interpreter.late import Outer

ROWS, WIDTH, PROGRAMS = 4, 8, 3
POISON = 0x7FC0BEEF


@triton.jit
def loaded(x_ptr, first, rows, M: tl.constexpr, C: tl.constexpr, KNOWN: tl.constexpr):
    """What was recorded in a call before, as all else than the load here with `KNOWN`, leaves its broadcasts to the load."""
    i = first + tl.arange(0, M)
    return tl.load(x_ptr + i[:, None] * C + tl.arange(0, C)[None, :], mask=i[:, None] < rows, other=0.0)


@triton.jit
def stored(x_ptr, x, first, rows, M: tl.constexpr, C: tl.constexpr, KNOWN: tl.constexpr):
    """Likewise."""
    i = first + tl.arange(0, M)
    tl.store(x_ptr + i[:, None] * C + tl.arange(0, C)[None, :], x, mask=i[:, None] < rows)


@triton.jit
def kernel(x_ptr, out_ptr, shift, rows, M: tl.constexpr, C: tl.constexpr):
    p = tl.program_id(0)
    x = loaded(x_ptr, p * M + shift, rows * 0 - 99, M, C, False)
    x = loaded(x_ptr, p * M + shift, rows, M, C, True)
    stored(out_ptr, x + 1, p * M, rows * 0 - 99, M, C, False)
    stored(out_ptr, x + 1, p * M, rows, M, C, True)


def reports(x, out, shift, *, replaying, **known):
    """What the sanitizer says of the last of three launches."""
    with session(Sanitizer) as opened:
        if not replaying:
            opened.lockstep_class.tapes = None
        for _ in range(3):
            with watch(**known) as seen:
                kernel[(PROGRAMS,)](x, out, shift, 12, M=ROWS, C=WIDTH)
        assert not opened.fallbacks
    return sorted((each.kind, each.index, each.lanes, each.detail) for each in seen.reports.values())


@pytest.mark.parametrize("replaying", [True, False])
@pytest.mark.parametrize(("shift", "lanes"), [(0, None), (1, 2 * WIDTH), (ROWS, 2 * ROWS * WIDTH)])
def test_rows_that_another_program_stores_are_a_race(shift, lanes, replaying):
    x = torch.zeros(16, WIDTH)
    found = reports(x, x, shift, replaying=replaying)

    if lanes is None:
        assert found == []
    else:
        [(kind, index, count, detail)] = found
        assert (kind, count) == ("race", lanes)
        assert index == (ROWS, 0)
        assert detail == "written by program (1, 0, 0) in the same launch"


@pytest.mark.parametrize("replaying", [True, False])
def test_rows_that_nobody_wrote_are_reported(replaying):
    x, out = torch.zeros(16, WIDTH), torch.zeros(16, WIDTH)
    x.view(torch.int32)[5, 2:4] = POISON
    x.view(torch.int32)[13] = POISON  # masked off
    poison = {x.untyped_storage().data_ptr(): POISON}
    found = reports(
        x, out, 0, replaying=replaying, poison=lambda tensor: poison.get(tensor.untyped_storage().data_ptr())
    )

    assert found == [("uninitialised", (5, 2), 2, "nobody has written the element")]


def test_the_lanes_of_rows_are_not_made():
    x, out, made = torch.zeros(16, WIDTH), torch.zeros(16, WIDTH), []

    class Told(Sanitizer):
        def create_masked_load(self, ptrs, *args, **options):
            found = super().create_masked_load(ptrs, *args, **options)
            made.append(ptrs.__class__ is not Outer or ptrs._made is not None)
            return found

    with session(Told):
        for _ in range(2):
            with watch():
                kernel[(PROGRAMS,)](x, out, 0, 12, M=ROWS, C=WIDTH)

    assert not made[-1]
