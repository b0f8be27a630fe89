import pytest

from flashverify.interpreter import faithful
from flashverify.interpreter.hooks import interpreting


@pytest.fixture(scope="module")
def _session():
    if not interpreting():
        pytest.skip("kernels are compiled in this process")
    with faithful() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _interpreted(_session):
    before = _session.fallbacks.copy()
    yield
    assert _session.fallbacks == before
