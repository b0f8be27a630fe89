import pytest

from flashverify.interpreter.hooks import interpreting


@pytest.fixture(autouse=True)
def _needs_the_interpreter():
    if not interpreting():
        pytest.skip("kernels are compiled in this process")
