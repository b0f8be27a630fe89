"""Which accesses of different programs atomic operations put in order, and which not; programs that take turns."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from flashverify.interpreter import Sanitizer, session, watch


@triton.jit
def last_one_reads(x_ptr, count_ptr, out_ptr, n, SEM: tl.constexpr, SCOPE: tl.constexpr):
    p = tl.program_id(0)
    tl.store(x_ptr + p, 1.0)
    if tl.atomic_add(count_ptr, 1, sem=SEM, scope=SCOPE) == n - 1:
        total = 0.0
        for j in range(n):
            total += tl.load(x_ptr + j)
        tl.store(out_ptr, total)


@triton.jit
def counts_elsewhere(x_ptr, count_ptr, out_ptr, n):
    """Each program has a counter of its own, which puts nothing in order."""
    p = tl.program_id(0)
    tl.store(x_ptr + p, 1.0)
    tl.atomic_add(count_ptr + p, 1)
    tl.store(out_ptr + p, tl.load(x_ptr + (p + 1) % n))


@triton.jit
def under_a_lock(total_ptr, lock_ptr, LOCKED: tl.constexpr):
    if LOCKED:
        while tl.atomic_cas(lock_ptr, 0, 1) == 1:
            pass
    else:
        tl.atomic_add(lock_ptr + tl.program_id(0), 1)
    tl.store(total_ptr, tl.load(total_ptr) + 1.0)
    tl.debug_barrier()
    if LOCKED:
        tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def reset_by_the_last(count_ptr, out_ptr, n, EARLY: tl.constexpr):
    """The counter goes back to 0 with a plain store, by the program that arrives last, or by every one."""
    if (tl.atomic_add(count_ptr, 1) == n - 1) | EARLY:
        tl.store(count_ptr, 0)
        tl.store(out_ptr + tl.program_id(0), 1.0)


@triton.jit
def handed_on(x_ptr, flag_ptr, n):
    """Program p waits for the flag of program p - 1, adds to what that one stored, and raises its own."""
    p = tl.program_id(0)
    before = 0.0
    if p > 0:
        while tl.atomic_add(flag_ptr + p - 1, 0, sem="acquire") == 0:
            pass
        before = tl.load(x_ptr + p - 1)
    tl.store(x_ptr + p, before + 1.0)
    tl.atomic_xchg(flag_ptr + p, 1, sem="release")


def reports(kernel, grid, *args, turns=None, **kwargs):
    with session(Sanitizer) as opened, watch() as seen:
        if turns is None:
            kernel[grid](*args, **kwargs)
        else:
            with opened.interleaved(turns):
                kernel[grid](*args, **kwargs)
    return {(report.kind, report.argument) for report in seen.reports.values()}


def ints(n):
    return torch.zeros(n, dtype=torch.int32)


@pytest.mark.parametrize(
    ("sem", "scope", "ordered"),
    [("acq_rel", "gpu", True), ("release", "gpu", False), ("acquire", "gpu", False), ("relaxed", "gpu", False), ("acq_rel", "cta", False)],
)  # fmt: skip
def test_a_counter_puts_programs_in_order_only_if_it_releases_and_acquires(sem, scope, ordered):
    found = reports(last_one_reads, (4,), torch.zeros(4), ints(1), torch.zeros(1), 4, SEM=sem, SCOPE=scope)

    assert found == (set() if ordered else {("race", "x_ptr")})


def test_atomic_operations_on_other_elements_put_nothing_in_order():
    assert reports(counts_elsewhere, (4,), torch.zeros(4), ints(4), torch.zeros(4), 4) == {("race", "x_ptr")}


@pytest.mark.parametrize("turns", [None, 1, 2])
def test_a_lock_puts_its_holders_in_order(turns):
    total = torch.zeros(1)

    assert reports(under_a_lock, (5,), total, ints(1), LOCKED=True, turns=turns) == set()
    assert total.item() == 5.0
    found = reports(under_a_lock, (5,), torch.zeros(1), ints(5), LOCKED=False)
    assert found == {("double-write", "total_ptr"), ("race", "total_ptr")}


def test_a_counter_is_reset_by_the_program_that_saw_all_others():
    assert reports(reset_by_the_last, (4,), ints(1), torch.zeros(4), 4, EARLY=False) == set()
    assert ("double-write", "count_ptr") in reports(reset_by_the_last, (4,), ints(1), torch.zeros(4), 4, EARLY=True)


@pytest.mark.parametrize("seed", range(4))
def test_programs_that_wait_for_one_another_end_in_turns_whichever_begins(seed):
    x = torch.zeros(4)
    with session(Sanitizer, order=lambda n: np.arange(n)[::-1]) as opened, watch() as seen, opened.interleaved(seed):
        handed_on[(4,)](x, ints(4), 4)

    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert not seen.reports


def test_an_error_in_turns_ends_the_launch_and_names_its_cause():
    @triton.jit
    def fails(count_ptr):
        tl.atomic_add(count_ptr, 1)
        raise ValueError("no")

    with session() as opened, opened.interleaved(1), pytest.raises(Exception, match="no") as raised:
        fails[(3,)](ints(1))

    assert isinstance(raised.value.__cause__, ValueError)
