"""Programs that walk a loop differently stay together: the same bits as one at a time, in one attempt."""

import ast

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpreterError

from flashverify.interpreter import Sanitizer, faithful, session, watch
from flashverify.interpreter.loop_code import REWRITTEN, LoopTransformer
from tests.interpreter.test_interpreter_lockstep import thrice

PROGRAMS = 7


@triton.jit
def triangle(x_ptr, out_ptr, N: tl.constexpr):
    """Sums from different places, different numbers of times: none in the first program."""
    p = tl.program_id(0)
    n = tl.arange(0, N)
    total = tl.full([N], 0.5, tl.float32)
    steps = p * 0
    for k in range(p // 2, p):
        x = tl.load(x_ptr + k * N + n)
        total = total / 3 + x * (k + 1)
        steps += 1
    tl.store(out_ptr + p * N + n, total * steps)


@triton.jit
def nested(x_ptr, out_ptr, N: tl.constexpr):
    """A loop in a loop, with a tuple and an unused program-wide value, and a store in the inner one."""
    p = tl.program_id(0)
    n = tl.arange(0, N)
    pair = (tl.full([N], 0.0, tl.float32), p + n)
    for a in tl.range(0, p % 4):
        row = tl.load(x_ptr + a * N + n)
        for b in range(a, p, 2):
            pair = (pair[0] + row * b, pair[1] + a)
            tl.store(out_ptr + p * N + n, pair[0])
        pair = (pair[0] * 2, pair[1])
    tl.store(out_ptr + p * N + n, pair[0] + pair[1])


@triton.jit
def asks_where_it_is(x_ptr, out_ptr, N: tl.constexpr):
    """The id of the program, asked for by those that still walk."""
    n = tl.arange(0, N)
    total = tl.full([N], 0.0, tl.float32)
    for k in range(tl.program_id(0)):
        total += tl.load(x_ptr + tl.program_id(0) * N + n) * k
    tl.store(out_ptr + tl.program_id(0) * N + n, total)


@triton.jit
def parts_in_a_loop(x_ptr, out_ptr, N: tl.constexpr):
    """Programs that part in a loop, and there once more by a condition."""
    p = tl.program_id(0)
    n = tl.arange(0, N)
    total = tl.full([N], 0.0, tl.float32)
    for k in range(p):
        x = tl.load(x_ptr + k * N + n)
        if (p + k) % 3 == 0:
            x = x * 2
        total += x
    tl.store(out_ptr + p * N + n, total)


@triton.jit
def changes_type(x_ptr, out_ptr, N: tl.constexpr):
    """A name whose type is another one behind the loop: programs run apart."""
    p = tl.program_id(0)
    total = p
    for k in range(p):
        total = total + tl.load(x_ptr + k)
    tl.store(out_ptr + p * N, total)


@triton.jit
def from_below_zero(x_ptr, out_ptr, N: tl.constexpr):
    """Quotients of negative places, which Python's numbers round down and tensors towards zero: programs run apart."""
    p = tl.program_id(0)
    total = 0
    for k in range(p - 5, p):
        total += (k // 2) * 100 + k % 3
    tl.store(out_ptr + p * N, total)


@triton.jit
def left_behind(x_ptr, out_ptr, N: tl.constexpr):
    """What a loop alone assigns to is used behind it."""
    p = tl.program_id(0)
    n = tl.arange(0, N)
    for k in range(p + 1):
        x = tl.load(x_ptr + k * N + n)
    tl.store(out_ptr + p * N + n, x)


@triton.jit
def changes_pointer(x_ptr, out_ptr, N: tl.constexpr):
    """A pointer that is one to another type behind the loop: programs run apart."""
    p = tl.program_id(0)
    at = x_ptr + p
    for _ in range(p % 2):
        at = (x_ptr + p).to(tl.pointer_type(tl.int32), bitcast=True)
    tl.store(out_ptr + p * N, tl.load(at).to(tl.float32))


@triton.jit
def summed(x_ptr, rows, n, N: tl.constexpr):
    total = tl.full([N], 0.0, tl.float32)
    for k in range(rows):
        total += tl.load(x_ptr + k * N + n) * k
    return total


@triton.jit
def parts_in_a_call(x_ptr, out_ptr, N: tl.constexpr):
    """A loop of a function, which is recorded at its first call: programs run apart."""
    p = tl.program_id(0)
    n = tl.arange(0, N)
    tl.store(out_ptr + p * N + n, summed(x_ptr, p, n, N) + summed(x_ptr, p // 2, n, N))


@triton.jit
def gathers_in_a_list(x_ptr, out_ptr, N: tl.constexpr):
    """A list grows in the loop: programs run apart."""
    p = tl.program_id(0)
    rows = []
    for k in range(p):
        rows.append(tl.load(x_ptr + k * N + tl.arange(0, N)))
    total = tl.full([N], 0.0, tl.float32)
    for row in rows:
        total += row
    tl.store(out_ptr + p * N + tl.arange(0, N), total)


def _launched(kernel, stock_run):
    x, out = torch.arange(8.0 * PROGRAMS) / 7, torch.zeros(8 * PROGRAMS)
    return thrice(lambda x, out: kernel[(PROGRAMS,)](x, out, N=8), x, out, stock_run=stock_run)


@pytest.mark.parametrize(
    "kernel", [triangle, nested, asks_where_it_is, left_behind], ids=lambda kernel: kernel.__name__
)
def test_they_stay_together(kernel, stock_run):
    opened = _launched(kernel, stock_run)

    assert (opened.attempts, dict(opened.fallbacks)) == (1, {})


@pytest.mark.parametrize(
    "kernel",
    [parts_in_a_loop, changes_type, changes_pointer, parts_in_a_call, gathers_in_a_list, from_below_zero],
    ids=lambda kernel: kernel.__name__,
)
def test_where_they_cannot_they_run_apart(kernel, stock_run):
    opened = _launched(kernel, stock_run)

    assert opened.attempts > 1
    assert not opened.fallbacks


@triton.jit
def never_set(x_ptr, out_ptr, N: tl.constexpr):
    """What program 0, which walks nothing, has not assigned to is used behind the loop."""
    p = tl.program_id(0)
    n = tl.arange(0, N)
    for k in range(p):
        x = tl.load(x_ptr + k * N + n)
    tl.store(out_ptr + p * N + n, x)


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_name_that_a_program_never_set_is_an_error(lockstep):
    with session(lockstep=lockstep), pytest.raises(InterpreterError, match="local variable"):
        never_set[(PROGRAMS,)](torch.zeros(8 * PROGRAMS), torch.zeros(8 * PROGRAMS), N=8)


def test_another_launch_with_more_turns():
    out = torch.zeros(8 * PROGRAMS)
    x = torch.arange(8.0 * PROGRAMS)
    results = []
    for lockstep in (True, False):
        with session(lockstep=lockstep):
            for programs in (2, PROGRAMS):
                triangle[(programs,)](x, out, N=8)
            results.append(out.clone())

    assert torch.equal(*results)


@triton.jit
def too_far(x_ptr, out_ptr, N: tl.constexpr):
    p = tl.program_id(0)
    total = 0.0
    for k in range(p):
        total += tl.load(x_ptr + k)
        tl.store(out_ptr + k, total)
    tl.store(out_ptr + N + p, total)


@pytest.mark.parametrize("lockstep", [True, False])
def test_the_sanitizer_knows_the_programs_that_still_walk(lockstep):
    """Programs 4 to 6 load elements 3 to 5, of which the tensor has none; all but program 0 store what others store too."""
    x, out = torch.ones(3), torch.zeros(16)

    with faithful(Sanitizer, lockstep=lockstep), watch(inputs={x.untyped_storage().data_ptr()}) as seen:
        too_far[(PROGRAMS,)](x, out, N=8)

    reports = {report.kind: report for report in seen.reports.values()}
    assert set(reports) == {"out-of-bounds", "double-write"}
    assert reports["out-of-bounds"].program == (4, 0, 0)
    assert reports["out-of-bounds"].index == (3,)
    assert reports["double-write"].index == (0,)
    assert reports["double-write"].program[0] in range(1, PROGRAMS)  # program 0 walks nothing


def test_a_session_leaves_the_code_of_kernels_as_it_was():
    with session():
        triangle[(1,)](torch.zeros(8), torch.zeros(8), N=8)
        assert "loop" in REWRITTEN[triangle.fn].__code__.co_names

    assert "loop" not in triangle.rewrite().__code__.co_names


def _rewritten(body):
    source = (
        "def kernel(x_ptr, n, p):\n    total = 0.0\n" + "".join(f"    {line}\n" for line in body) + "    return total"
    )
    return ast.unparse(LoopTransformer().visit(ast.parse(source)))


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (["for k in range(p):", "    x = load(x_ptr + k)", "    total += x"], "('total',), ('x_ptr',)"),
        (["x = 1", "for k in range(p):", "    total += x", "    x = total"], "('total', 'x'), ()"),
        (["for k in range(p):", "    if n:", "        x = 1", "    total += x"], "('total', 'x'), ('n',)"),
        (["for k in range(p):", "    if n: x = 1", "    else: x = 2", "    total += x"], "('total',), ('n',)"),
        (["for k in tl.range(p):", "    for j in range(k): x = j", "    total += x"], "('total', 'x'), ()"),
    ],
)
def test_what_a_later_turn_or_statement_reads_is_carried(body, names):
    assert f"builder.loop({names}, " in _rewritten(body)


@pytest.mark.parametrize(
    "body",
    [
        ["for k in range(p):", "    total += k", "    if total > n: break"],
        ["for k in range(p):", "    total += k", "n = k"],
        ["for k in range(p):", "    while total < n: total += k"],
        ["for k in tl.static_range(p):", "    total += k"],
        ["for k in range(p):", "    total = sum([k for k in n])"],
        ["for k in range(p): total += k", "else: total = 0"],
    ],
)
def test_other_loops_stay_as_they_are(body):
    assert "builder.loop(" not in _rewritten(body)
