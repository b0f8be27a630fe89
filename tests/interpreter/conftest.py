import pytest
import triton

from flashverify.interpreter.hooks import interpreting

# Triton 3.6's own interpreter takes the bounds of a loop as int() of a one-element array, which numpy refuses from 2.4 on.
_NUMPY_REFUSES = "only 0-dimensional arrays can be converted to Python scalars"


@pytest.fixture(autouse=True)
def _needs_the_interpreter():
    if not interpreting():
        pytest.skip("kernels are compiled in this process")


@pytest.fixture
def stock_run():
    """Runs a function in the stock interpreter: its result, or None where it cannot run on this numpy.

    What the test asserts without it still counts: it passes or fails, and the comparison is reported as skipped.
    """
    missing = []

    def run(function):
        try:
            return function()
        except triton.runtime.errors.InterpreterError as error:
            if not triton.__version__.startswith("3.6.") or _NUMPY_REFUSES not in str(error):
                raise
            missing.append(str(error))
            return None

    yield run
    if missing:
        pytest.skip(f"nothing to compare with: stock triton {triton.__version__} fails on this numpy ({missing[0]})")
