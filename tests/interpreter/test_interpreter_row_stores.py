"""Stores of whole rows, which are looked at a row at a time: the same memory and the same reports as lane by lane."""

import pytest
import torch
import triton
import triton.language as tl

from flashverify.interpreter import Sanitizer, session, watch

ROWS, WIDTH, PROGRAMS = 4, 8, 3


@triton.jit
def stored(out_ptr, x, first, rows, step, M: tl.constexpr, C: tl.constexpr, KNOWN: tl.constexpr):
    """What was recorded in a call before, as all else than the store here with `KNOWN`, leaves its broadcasts to the store."""
    i = first + tl.arange(0, M)
    tl.store(out_ptr + i[:, None] * step + tl.arange(0, C)[None, :], x, mask=i[:, None] < rows)


@triton.jit
def kernel(out_ptr, first, apart, again, rows, step, M: tl.constexpr, C: tl.constexpr):
    p = tl.program_id(0)
    x = tl.full([M, C], 1.0, tl.float32) + p
    stored(out_ptr, x, first + p * apart, rows * 0 - 99, step, M, C, False)
    stored(out_ptr, x, first + p * apart, rows, step, M, C, True)
    stored(out_ptr, x + 10, first + p * apart + again, rows, step, M, C, True)


@triton.jit
def grown(out_ptr, flag_ptr, rows, M: tl.constexpr, C: tl.constexpr):
    p = tl.program_id(0)
    i = p * M + tl.arange(0, M)
    at = out_ptr + i[:, None] * C + tl.arange(0, C)[None, :]
    x = tl.load(at, mask=i[:, None] < rows, other=0.0)
    stored(out_ptr, x, p * M, rows * 0 - 99, C, M, C, False)
    stored(out_ptr, x + 1, p * M, rows, C, M, C, True)
    if tl.load(flag_ptr + p) > 0:
        stored(out_ptr, x + 2, p * M, rows, C, M, C, True)


def run(launch, out, *, replaying=True, inputs=()):
    """What three launches in turn leave in `out`, and what the sanitizer reports of each; nothing is replayed unless `replaying`."""
    before, found = out.clone(), []
    with session(Sanitizer) as opened:
        if not replaying:
            opened.lockstep_class.tapes = None
        for _ in range(3):
            with watch(inputs={x.untyped_storage().data_ptr() for x in inputs}) as seen:
                launch(out.copy_(before))
            found.append((out.clone(), sorted(map(str, seen.reports.values())), seen.told))
        assert not opened.fallbacks
    assert all(torch.equal(each[0], found[0][0]) and each[1:] == found[0][1:] for each in found)
    return found[0]


def both(launch, out, **asked):
    """The reports, where rows are told as lanes are."""
    before = out.clone()
    rows, lanes = run(launch, out, **asked), run(launch, out.copy_(before), replaying=False, **asked)
    assert torch.equal(rows[0], lanes[0])
    assert rows[1:] == lanes[1:]
    return rows[1]


@pytest.mark.parametrize(
    ("first", "apart", "again", "rows", "step", "said"),
    [
        (0, ROWS, 0, 12, WIDTH, []),
        (0, ROWS, 0, 10, WIDTH, []),
        (0, ROWS, 0, 12, 2 * WIDTH, []),
        (0, ROWS, 0, 0, WIDTH, []),
        (0, ROWS, 1, 12, WIDTH, ["double-write"]),
        (0, ROWS - 1, 0, 12, WIDTH, ["double-write", "double-write"]),
        (0, 0, 0, 12, WIDTH, ["double-write", "double-write"]),
        (0, ROWS, 0, 12, WIDTH - 1, ["double-write", "double-write"]),
        (-1, ROWS, 0, 12, WIDTH, ["out-of-bounds", "out-of-bounds"]),
        (0, ROWS, 0, 99, 3 * WIDTH, ["out-of-bounds", "out-of-bounds"]),
    ],
)
def test_rows_are_told_as_lanes_are(first, apart, again, rows, step, said):
    memory = torch.zeros(400)
    out = memory[50 : 50 + 12 * 2 * WIDTH]
    told = both(lambda x: kernel[(PROGRAMS,)](x, first, apart, again, rows, step, M=ROWS, C=WIDTH), out)
    kinds = {"double-write": "writes the element too", "out-of-bounds": "the tensor"}

    assert len(told) == len(said)
    assert all(kinds[kind] in text for kind, text in zip(said, told, strict=True))


def test_a_row_that_reaches_into_a_gap_is_reported():
    out = torch.zeros(400).as_strided((12, WIDTH - 2), (WIDTH, 1), 16)
    [one, other] = both(lambda x: kernel[(PROGRAMS,)](x, 0, ROWS, 0, 12, WIDTH, M=ROWS, C=WIDTH), out)

    assert "in a gap" in one
    assert "in a gap" in other


def test_rows_of_an_input_are_reported():
    out = torch.zeros(12, WIDTH)
    told = both(lambda x: kernel[(PROGRAMS,)](x, 0, ROWS, 0, 12, WIDTH, M=ROWS, C=WIDTH), out, inputs=(out,))

    assert all("the tensor is an input" in text for text in told)
    assert len(told) == 2


def test_rows_are_taken_back_where_programs_part():
    out, flags = torch.arange(12.0 * WIDTH).view(12, WIDTH).contiguous(), torch.tensor([0, 1, 0])
    before = out.clone()
    assert both(lambda x: grown[(PROGRAMS,)](x, flags, 11, M=ROWS, C=WIDTH), out) == []

    expected = before + 1
    expected[ROWS : 2 * ROWS] += 1
    expected[11] = before[11]
    assert torch.equal(out, expected)
