"""A project of its own in a temporary folder, run inside this process, with subjects that need no torch."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

# pytester forgets the modules that a run imported; numpy cannot be imported twice, so all of them are there before.
import flashverify.pytest_plugin.collection
import flashverify.pytest_plugin.header
import flashverify.pytest_plugin.running
import flashverify.pytest_plugin.runtime
import flashverify.pytest_plugin.summary  # noqa: F401
from flashverify.campaign import toolkit

FAKES = Path(__file__).resolve().parents[1] / "campaign"
INSTALLED = any(point.name == "flashverify" for point in entry_points(group="pytest11"))
PLUGIN = () if INSTALLED else ("-p", "flashverify.pytest_plugin")


@pytest.fixture
def project(pytester, monkeypatch):
    """Runs pytest on test files given by name; subjects are behaviours of tests/campaign/fake_toolkit.py."""
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.setattr(toolkit, "BUNDLED", "fake_toolkit:toolkit")
    monkeypatch.setenv("FLASHVERIFY_DEVICE", "cpu")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # the kernels of the process that runs the tests are compiled

    def run(source, *arguments):
        pytester.makepyfile(test_it=f"import pytest\n\n{source}")
        return pytester.runpytest_inprocess(*PLUGIN, "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *arguments)

    run.pytester = pytester
    return run


def marked(arguments, body="pass", parameters=""):
    return f"@pytest.mark.flashverify({arguments})\ndef test_mine({parameters}):\n    {body}\n"
