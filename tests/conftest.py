"""What every test runs under: one thread, interpreted kernels where there is no GPU, and what `tests/machines.py` asks for."""

import compileall
import ctypes
import gc
import os
import random
import socket
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from flashverify.campaign.worker.stable_draws import stable_draws
from flashverify.subjects import has_gpu

ROOT = Path(__file__).resolve().parents[1]

# Small problems on busy cores: a second thread costs far more than it gives. Read when torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Triton reads this when it is first imported; without a GPU its interpreter runs the kernels.
if not has_gpu():
    os.environ.setdefault("TRITON_INTERPRET", "1")


# The same examples everywhere, however slow the machine is and whether or not it calls itself CI; nothing is kept on disk.
settings.register_profile(
    "everywhere", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("everywhere")

# Hypothesis would draw constants out of the source of every module that other tests have imported, and read all of it first.
_STABLE = pytest.StashKey[ExitStack]()
# How many tests of a function were collected.
_PLACES = pytest.StashKey[Counter]()


@pytest.fixture
def constants_of_modules(pytestconfig):
    """Hypothesis draws constants of modules in this test, as it does for a user."""
    pytestconfig.stash[_STABLE].close()
    yield
    pytestconfig.stash[_STABLE].enter_context(stable_draws())


def pytest_addoption(parser):
    group = parser.getgroup("flashverify")
    group.addoption("--stock", action="store_true", help="tests/kernels in Triton's own interpreter: many times slower")
    group.addoption("--shuffle", type=int, metavar="SEED", help="the tests in an order drawn from SEED")
    group.addoption(
        "--offline", action="store_true", help="a connection to another machine fails the test that opens it"
    )


def blas_kernel():
    """The kernel that NumPy's OpenBLAS runs, or the name of another BLAS."""
    import numpy

    for library in Path(numpy.__file__).parents[1].glob("numpy.libs/*openblas*"):
        name = getattr(ctypes.CDLL(str(library)), "scipy_openblas_get_corename64_", None)
        if name is not None:
            name.restype = ctypes.c_char_p
            return f"OpenBLAS {name().decode()}"
    return numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]


def numpy_vectors():
    """The groups of vector instructions that NumPy chooses between on this processor."""
    from numpy._core import _multiarray_umath as numpy_core

    return [name for name in numpy_core.__cpu_dispatch__ if numpy_core.__cpu_features__.get(name)]


def pytest_report_header():
    """The libraries and settings that may change the last bits of a result."""
    import torch

    mode = "interpreted" if os.environ.get("TRITON_INTERPRET") == "1" else "compiled"
    return [
        f"products: NumPy with {blas_kernel()} and {' '.join(numpy_vectors())}, torch with {torch.backends.cpu.get_cpu_capability()}",
        f"threads: OMP {os.environ['OMP_NUM_THREADS']}, torch {torch.get_num_threads()}; kernels: {mode}",
    ]


def pytest_itemcollected(item):
    """Marks are given here: those that the command line asks for are looked at when all tests are collected."""
    mark = item.get_closest_marker("one_in")
    if mark is None:
        return
    places = item.config.stash.setdefault(_PLACES, Counter())
    function = (item.path, item.originalname)
    if places[function] % mark.args[0]:
        item.add_marker(pytest.mark.thorough)
    places[function] += 1


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if not _asks_for_thorough(config):
        left = [item for item in items if item.get_closest_marker("thorough")]
        if left:
            config.hook.pytest_deselected(items=left)
            items[:] = [item for item in items if not item.get_closest_marker("thorough")]
    seed = config.getoption("--shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)


def _asks_for_thorough(config):
    """Whether the command line names the marker, or single tests by their words or ids."""
    named = config.option.keyword or any("::" in str(argument) for argument in config.args)
    return bool(named) or "thorough" in config.option.markexpr


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Test modules are compiled once for all workers and runs, also where PYTHONDONTWRITEBYTECODE is set."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = before


def pytest_collection_finish():
    """Tests and modules live to the end: searching them again for garbage costs one second in twenty."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def pytest_configure(config):
    config.stash[_STABLE] = ExitStack()
    config.stash[_STABLE].enter_context(stable_draws())
    config.add_cleanup(config.stash[_STABLE].close)
    if not hasattr(config, "workerinput"):
        # Tests start hundreds of processes. Where none of them may write bytecode, each would compile the harness anew.
        for package in ("flashverify", "kernels", "oracles"):
            compileall.compile_dir(ROOT / package, quiet=2)
    if config.getoption("--offline"):
        sys.addaudithook(_refuse_the_network)


def _refuse_the_network(event, arguments):
    """An audit hook; sockets of this machine are left alone."""
    if event == "socket.connect" and arguments[0].family in (socket.AF_INET, socket.AF_INET6):
        host = arguments[1][0]
        if host not in ("127.0.0.1", "::1", "localhost"):
            raise PermissionError(f"--offline: a connection to {host} was opened")
    if event == "socket.getaddrinfo" and arguments[0] not in (None, "", "127.0.0.1", "::1", "localhost"):
        raise PermissionError(f"--offline: the address of {arguments[0]} was asked for")
