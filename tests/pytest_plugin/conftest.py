"""A project of its own in a temporary folder, with subjects that need no torch; run once for all tests of a file."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAKES = ROOT / "tests/campaign"
INSTALLED = any(point.name == "flashverify" for point in entry_points(group="pytest11"))
PLUGIN = () if INSTALLED else ("-p", "flashverify.pytest_plugin")
_CONFTEST = "from flashverify.campaign import toolkit\n\ntoolkit.BUNDLED = 'fake_toolkit:toolkit'\n"


class Session:
    """What a session of pytest left: its output, its folder, and the test cases of its JUnit file."""

    def __init__(self, folder, *arguments, github=""):
        path = os.pathsep.join(map(str, (ROOT, ROOT / "kernels", ROOT / "oracles", FAKES)))
        environment = os.environ | {"PYTHONPATH": path, "FLASHVERIFY_DEVICE": "cpu", "COLUMNS": "100"}
        environment["GITHUB_ACTIONS"] = github
        for name in ("TRITON_INTERPRET", "PYTEST_ADDOPTS"):
            environment.pop(name, None)
        command = [
            sys.executable,
            "-m",
            "pytest",
            *PLUGIN,
            "-p",
            "no:cacheprovider",
            "--junitxml=junit.xml",
            *arguments,
        ]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        self.folder, self.code, self.text, self.errors = folder, done.returncode, done.stdout, done.stderr

    @property
    def cases(self):
        """The test cases of the JUnit file by name."""
        root = ElementTree.parse(self.folder / "junit.xml").getroot()
        return {case.get("name"): case for case in root.iter("testcase")}

    def outcome(self, name):
        """Tag and text of what became of a test; `passed` where nothing else did."""
        problem = next((each for each in self.cases[name] if each.tag in ("failure", "skipped", "error")), None)
        return ("passed", "") if problem is None else (problem.tag, problem.text or problem.get("message"))

    def properties(self, name):
        return {each.get("name"): each.get("value") for each in self.cases[name].iter("property")}


@pytest.fixture(scope="session")
def session(tmp_path_factory):
    """Runs pytest in a new project whose one test file has this text."""

    def run(source, *arguments, github="", **files):
        folder = tmp_path_factory.mktemp("project")
        (folder / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "-ra"\n')
        (folder / "conftest.py").write_text(_CONFTEST)
        (folder / "test_it.py").write_text(f"import flashverify\nimport pytest\n\n{source}")
        for name, text in files.items():
            (folder / name.replace("__", "-").replace("_toml", ".toml")).write_text(text)
        return Session(folder, *arguments, github=github)

    return run


def marked(arguments, body="pass", parameters="", name="test_mine"):
    return f"@pytest.mark.flashverify({arguments})\ndef {name}({parameters}):\n    {body}\n\n"
