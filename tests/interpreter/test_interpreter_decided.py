"""A call that decides by the value of a scalar that it is given is replayed for that value, and for no other."""

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from flashverify.interpreter import Sanitizer, session
from flashverify.interpreter.decided import Decided, value_of
from flashverify.interpreter.hooks import handle
from flashverify.interpreter.replay import Tape


@triton.jit
def powers(x, count):
    total = x
    for n in range(count):
        total = total * x + n
    return total


@triton.jit
def either(x, first, second):
    if first:
        return powers(x, second)
    return x - 1.0


@triton.jit
def halved(x, count):
    return powers(x, count // 2)


@triton.jit
def of_arguments(x_ptr, out_ptr, first, second, KIND: tl.constexpr):
    i = tl.program_id(0) * 4 + tl.arange(0, 4)
    x = tl.load(x_ptr + i)
    if KIND == "powers":
        x = powers(x, second)
    elif KIND == "either":
        x = either(x, first, second)
    else:
        x = halved(x, second)
    tl.store(out_ptr + i, x)


@triton.jit
def of_memory(x_ptr, counts_ptr, out_ptr):
    p = tl.program_id(0)
    i = p * 4 + tl.arange(0, 4)
    tl.store(out_ptr + i, powers(tl.load(x_ptr + i), tl.load(counts_ptr + p)))


@triton.jit
def fetched(tiles, row, SCALE: tl.constexpr):
    return tiles.load([row, 0]) * SCALE


@triton.jit
def by_descriptor(tiles, out_ptr):
    row = tl.program_id(0) * 4
    at = out_ptr + (row + tl.arange(0, 4))[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(at, fetched(tiles, row, 2.0))


def both_ways(run):
    """What `run` gives one program at a time and in lockstep, and its last session."""
    found = []
    for lockstep in (False, True):
        with session(Sanitizer, lockstep=lockstep) as opened:
            found.append(run())
            assert not opened.fallbacks
            tapes = dict(opened.lockstep_class.tapes)
    assert all(map(torch.equal, *found))
    return found[0], tapes


def standing_for(tapes, function):
    return [tape for key, tape in tapes.items() if key[0] is function]


@pytest.mark.parametrize("kind", ["powers", "either", "halved"])
def test_every_value_of_a_deciding_scalar_gives_its_own_result(kind):
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    settings = [(first, second) for _ in range(3) for second in (5, 2, 0) for first in (1, 0)]

    def run():
        outs = [torch.empty_like(x) for _ in settings]
        for out, (first, second) in zip(outs, settings, strict=True):
            of_arguments[(3,)](x, out, first, second, KIND=kind)
        return outs

    outs, _ = both_ways(run)

    assert not torch.equal(outs[0], outs[2])
    assert all(map(torch.equal, outs[:6], outs[6:12]))


def test_a_loop_to_an_argument_is_replayed_and_one_to_what_is_computed_of_it_is_not():
    x, out = torch.ones(1, 4), torch.empty(1, 4)

    def run():
        for kind in ("powers", "halved"):
            for _ in range(2):
                of_arguments[(1,)](x, out, 1, 4, KIND=kind)
        return [out.clone()]

    _, tapes = both_ways(run)
    (known,) = {tape for tape in standing_for(tapes, powers) if tape is not None}

    assert known.numbers == (1,)
    assert isinstance(next(tape for key, tape in tapes.items() if key[1:] == ((1,), (4,))), Tape)
    assert standing_for(tapes, halved) == [None]


def test_programs_that_decide_differently_part_ways():
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(2))
    counts = [torch.tensor(c, dtype=torch.int32) for c in ([2, 2, 2, 2], [2, 0, 3, 2], [2, 2, 2, 2], [3, 3, 0, 0])]

    def run():
        outs = [torch.empty_like(x) for _ in counts]
        for out, count in zip(outs, counts, strict=True):
            of_memory[(4,)](x, count, out)
        return outs

    outs, _ = both_ways(run)

    assert not torch.equal(outs[0], outs[1])


def test_a_call_that_decides_by_what_always_changes_is_recorded_no_more():
    x, out = torch.ones(1, 4), torch.empty(1, 4)

    def run():
        for count in range(1, 20):
            of_arguments[(1,)](x, out, 1, count, KIND="powers")
        return [out.clone()]

    _, tapes = both_ways(run)

    assert standing_for(tapes, powers) == [None]


def test_a_descriptor_is_an_argument_of_a_replayed_call():
    data = [torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows)) for rows in (8, 6, 8, 5)]

    def run():
        outs = [torch.empty(8, 8) for _ in data]
        for x, out in zip(data, outs, strict=True):
            by_descriptor[(2,)](TensorDescriptor.from_tensor(x, [4, 8]), out)
        return outs

    outs, tapes = both_ways(run)

    assert all(isinstance(tape, Tape) for tape in standing_for(tapes, fetched))
    assert len(standing_for(tapes, fetched)) == 1
    assert torch.equal(outs[3][:5], data[3] * 2)
    assert not outs[3][5:].any()


def test_inputs_that_only_some_values_decide_by_are_in_the_key_of_all():
    def scalar(*values):
        return type("Tensor", (), {"handle": handle(torch.tensor(values).numpy(), None)})()

    known = Decided((0,))
    more = known.also((0, 2))

    assert known.also((0,)) is known
    assert more.key("call", [scalar(1), scalar(5), scalar(7)]) == ("call", (0, 2), (1, 7))
    assert more.key("call", [scalar(1), scalar(5), scalar(7, 8)]) is None
    assert value_of(handle(torch.tensor([0.5]).numpy(), None)) is None
