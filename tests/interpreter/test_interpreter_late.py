"""Tiles that are made when somebody looks at them: what a load reads of them, and what the sanitizer says of it."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from flashverify.interpreter import Layer, Sanitizer, session, watch

ROWS, CHANNELS = 5, 10


@triton.jit
def copied(x_ptr, out_ptr, rows, step, channels, first, M: tl.constexpr, C: tl.constexpr, EVERY: tl.constexpr):
    i = tl.arange(0, M)
    c = tl.arange(0, C)
    keep = (i[:, None] >= first) & (i[:, None] < rows)
    if not EVERY:
        keep = keep & (c[None, :] < channels)
    tile = tl.load(x_ptr + i[:, None] * step + c[None, :], mask=keep, other=-1.0)
    tl.store(out_ptr + i[:, None] * C + c[None, :], tile)


def layout(kind):
    """A tensor of ROWS rows, of CHANNELS channels or of 16, in memory with other values around it."""
    memory = torch.arange(1.0, 401.0)
    return {
        "dense": memory[:50].view(ROWS, CHANNELS),
        "gaps": memory.as_strided((ROWS, CHANNELS), (32, 1), 7),
        "whole": memory[:80].view(ROWS, 16),
        "whole-gaps": memory.as_strided((ROWS, 16), (24, 1), 3),
        "backwards": memory[80:].as_strided((ROWS, 16), (16, 1)),
    }[kind]


def run(x, *mixins, rows=ROWS, first=0, replaying=True, tile=8):
    """The tile that is loaded three times, and what the sanitizer reports of each."""
    out, seen = torch.zeros(tile, 16), []
    with session(*mixins) as opened:
        if not replaying:
            opened.lockstep_class.tapes = None
        for _ in range(3):
            with watch(inputs={x.untyped_storage().data_ptr()}) as found:
                given = (rows, x.stride(0), x.shape[1], first)
                copied[(1,)](x, out.zero_(), *given, M=tile, C=16, EVERY=x.shape[1] == 16)
            seen.append(None if found is None else list(found.reports.values()))
        assert not opened.fallbacks
    assert seen == seen[:1] * 3
    return out, seen[0]


@pytest.mark.parametrize("mixins", [(), (Sanitizer,)])
@pytest.mark.parametrize("kind", ["dense", "gaps", "whole", "whole-gaps"])
@pytest.mark.parametrize(("first", "rows", "tile"), [(0, ROWS, 8), (1, 3, 8), (2, 2, 8), (1, 4, 512)])
def test_a_tile_has_its_rows_and_the_fill_elsewhere(kind, first, rows, tile, mixins):
    x = layout(kind)
    expected = torch.full((tile, 16), -1.0)
    expected[first:rows, : x.shape[1]] = x[first:rows]
    found, reports = run(x, *mixins, first=first, rows=rows, tile=tile)

    assert torch.equal(found, expected)
    assert not reports


@pytest.mark.parametrize("kind", ["dense", "gaps", "whole", "whole-gaps"])
def test_rows_past_the_end_are_reported_as_lanes_are(kind):
    x = layout(kind)
    found, reports = run(x, Sanitizer, rows=7)
    expected, wanted = run(x, Sanitizer, rows=7, replaying=False)

    assert torch.equal(found, expected)
    assert reports == wanted
    assert [(each.kind, each.access, each.argument) for each in reports] == [("out-of-bounds", "load", "x_ptr")]


@triton.jit
def leaving(x_ptr, out_ptr, step, STEPS: tl.constexpr):
    i = tl.arange(0, 4)
    c = tl.arange(0, 16)
    tile = tl.load(x_ptr + STEPS + i[:, None] * step + c[None, :], mask=i[:, None] < 4, other=0.0)
    tl.store(out_ptr + i[:, None] * 16 + c[None, :], tile)


@pytest.mark.parametrize(("kind", "steps"), [("backwards", -1), ("whole", -1), ("whole", 17), ("whole-gaps", 1)])
def test_a_row_that_begins_before_its_tensor_or_ends_in_a_gap_is_reported(kind, steps):
    x, out = layout(kind), torch.zeros(4, 16)
    with session(Sanitizer):
        for _ in range(3):
            with watch(inputs={x.untyped_storage().data_ptr()}) as seen:
                leaving[(1,)](x, out, x.stride(0), STEPS=steps)
            assert [(each.kind, each.argument) for each in seen.reports.values()] == [("out-of-bounds", "x_ptr")]


class Looking(Layer):
    """Looks at what a load is given."""

    shapes = ()

    def create_masked_load(self, ptrs, mask, other, *rest, **options):
        self.shapes = (*self.shapes, (ptrs.data.shape, mask.data.shape, other.data.shape))
        return super().create_masked_load(ptrs, mask, other, *rest, **options)


def test_a_mixin_sees_whole_tiles():
    x, out = layout("whole"), torch.zeros(8, 16)
    with session(Looking) as opened:
        for _ in range(3):
            copied[(1,)](x, out, ROWS, 16, 16, 0, M=8, C=16, EVERY=True)

        assert opened.builder.shapes == (((1, 8, 16),) * 3,) * 3


class Filling(Layer):
    """Puts another array in the place of the fill of a load."""

    def create_masked_load(self, ptrs, mask, other, *rest, **options):
        other.data = np.full_like(other.data, 9)
        return super().create_masked_load(ptrs, mask, other, *rest, **options)


@pytest.mark.parametrize("mixins", [(Filling,), (Filling, Sanitizer)])
def test_an_array_that_a_mixin_puts_in_place_of_a_broadcast_is_what_counts(mixins):
    x, out = layout("whole"), torch.zeros(8, 16)
    with session(*mixins):
        for _ in range(3):
            copied[(1,)](x, out.zero_(), ROWS, 16, 16, 0, M=8, C=16, EVERY=True)
            assert torch.equal(out, torch.cat([x, torch.full((3, 16), 9.0)]))
