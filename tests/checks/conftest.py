import pytest

from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.subjects import has_gpu


@pytest.fixture(scope="module")
def interpreter():
    if has_gpu():
        pytest.skip("kernels are compiled in this process")
    with toolkit.open("cpu", plain=False):
        yield


@pytest.fixture(scope="module")
def session():
    """A session of the interpreter with the sanitizer, in lockstep."""
    from flashverify.interpreter import Sanitizer, faithful
    from flashverify.interpreter.hooks import interpreting

    if not interpreting():
        pytest.skip("kernels are compiled in this process")
    with faithful(Sanitizer) as opened:
        yield opened


@pytest.fixture
def spared(monkeypatch):
    """The launches that were not run, since a launch of the base pass loaded the same."""
    from flashverify.interpreter.repeats import Known

    found, repeat = [], Known.repeat
    monkeypatch.setattr(Known, "repeat", lambda known, arguments: (found.append(known), repeat(known, arguments)))
    return found
