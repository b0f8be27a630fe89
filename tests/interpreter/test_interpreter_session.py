"""What a session changes, it puts back."""

import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime.autotuner import Autotuner

from flashverify.errors import UsageError
from flashverify.interpreter import active, check_hooks, faithful, session
from flashverify.interpreter.hooks import InterpreterBuilder, stock


@triton.jit
def doubled(x_ptr, out_ptr, N: tl.constexpr):
    p = tl.program_id(0)
    i = p * N + tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, x * 2 + tl.max(x, 0))


def launch(dtype=torch.float32):
    x = torch.arange(16).to(dtype)
    out = torch.zeros_like(x)
    doubled[(2,)](x, out, N=8)
    return out


def state():
    """Everything that Triton keeps where a session may touch it."""
    owners = (stock, stock.interpreter_builder, InterpreterBuilder, tl, tl.core, tl.math, tl.standard, tl.core.tensor)
    owners += (tl.core.block_type, tl.core.dtype, tl.core.tensor_descriptor_base, Autotuner, libdevice, tl.extra.cuda)
    found = {(n, name): value for n, owner in enumerate(owners) for name, value in vars(owner).items()}
    return {**found, "class": stock.interpreter_builder.__class__}


def test_everything_is_put_back():
    expected = (
        launch()
    )  # Triton itself leaves patches behind at the first launch, and keeps the place of the last program
    before = state()

    with faithful() as opened:
        assert active() is opened
        assert stock.interpreter_builder.__class__ is opened.plain_class
        launch(torch.bfloat16)
    after = state()

    assert active() is None
    assert after.keys() == before.keys()
    assert all(after[key] is before[key] for key in before)
    assert torch.equal(launch(), expected)


def test_everything_is_put_back_after_an_exception():
    launch()
    before = state()

    with pytest.raises(ZeroDivisionError), session():
        launch(1 // 0)
    after = state()

    assert all(after[key] is before[key] for key in before)


def test_sessions_do_not_nest():
    with session() as outer:
        with pytest.raises(UsageError, match="do not nest"), session():
            pass

        assert active() is outer
        assert torch.equal(launch(), torch.arange(16.0) * 2 + torch.tensor([7.0] * 8 + [15.0] * 8))
    with session():
        pass


def test_kernels_rewritten_in_a_session_work_outside_of_it_and_the_other_way_round():
    @triton.jit
    def fresh(x_ptr):
        tl.store(x_ptr + tl.program_id(0), tl.cdiv(tl.program_id(0) + 1, 2))

    results = []
    for inside in (True, False, True):
        x = torch.zeros(4)
        if inside:
            with session():
                fresh[(4,)](x)
        else:
            fresh[(4,)](x)
        results.append(x.tolist())

    assert results == [[1.0, 1.0, 2.0, 2.0]] * 3


def test_launches_from_threads_take_turns():
    results = []
    with session():
        threads = [threading.Thread(target=lambda: results.append(launch())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(results) == 4
    assert all(torch.equal(r, results[0]) for r in results)


def test_the_hooks_are_those_of_the_installed_triton():
    check_hooks()


def doctored(**changes):
    names = {name: getattr(stock, name) for name in dir(stock)}
    names.update(changes)
    return SimpleNamespace(**{name: value for name, value in names.items() if value is not None})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"_patch_lang": None}, "_patch_lang"),
        ({"_get_np_dtype": lambda tt_dtype, device: None}, None),
        ({"_get_np_dtype": lambda kind: None}, r"_get_np_dtype\(tt_dtype\)"),
        ({"InterpreterBuilder": type("Builder", (InterpreterBuilder,), {"create_dot": None})}, "create_dot"),
        (
            {"InterpreterBuilder": type("Builder", (InterpreterBuilder,), {"create_fma": lambda self, x: x})},
            "create_fma with 3",
        ),
        ({"_interpreter": SimpleNamespace(load=None)}, "_interpreter.store"),
        ({"interpreter_builder": SimpleNamespace(options=None)}, "sanitize_overflow"),
    ],
)
def test_another_interpreter_is_refused_by_name(changes, named):
    if named is None:
        check_hooks(doctored(**changes))  # more parameters at the end are not used
        return
    with pytest.raises(UsageError, match=f"triton {triton.__version__} is not supported.*{named}"):
        check_hooks(doctored(**changes))


def test_an_old_version_is_refused(monkeypatch):
    monkeypatch.setattr(triton, "__version__", "3.5.1")

    with pytest.raises(UsageError, match=r"triton 3\.5\.1 is not supported .*: it takes 3\.6 and newer ones"):
        check_hooks()


@pytest.mark.slow
@pytest.mark.parametrize("late", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_a_process_that_compiles_is_refused(late):
    code = (
        "import os\n"
        "os.environ.pop('TRITON_INTERPRET', None)\n"
        "import triton\n"
        f"os.environ.update({{'TRITON_INTERPRET': '1'}} if {late} else {{}})\n"
        "from flashverify.errors import UsageError\n"
        "from flashverify.interpreter import session\n"
        "try:\n"
        "    session().__enter__()\n"
        "except UsageError as error:\n"
        "    assert 'before triton is imported' in str(error)\n"
        "else:\n"
        "    raise SystemExit('a session opened')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
