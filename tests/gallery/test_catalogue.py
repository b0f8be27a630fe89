"""The catalogue says of each kernel what its adapter has, and adapters are found by name."""

import ast
import re
from pathlib import Path

import pytest

import flashverify.gallery.kernels as adapters
from flashverify.gallery.catalogue import CATALOGUE
from flashverify.gallery.table import catalogue_text

FOLDER = Path(adapters.__file__).parent
REPORTS = Path(__file__).parents[2] / "reports"


def subjects_in(path: Path) -> set[str]:
    """Names of the functions that `@subject` decorates."""
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return {
        f.name
        for f in functions
        if any(isinstance(d, ast.Call) and getattr(d.func, "id", "") == "subject" for d in f.decorator_list)
    }


def test_each_release_has_a_module_of_adapters_and_each_module_a_release():
    modules = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}

    assert sorted(release.name for release in CATALOGUE) == sorted(modules)


@pytest.mark.parametrize("release", CATALOGUE, ids=lambda release: release.name)
def test_the_kernels_of_a_release_are_the_subjects_of_its_module(release):
    assert {kernel.name for kernel in release.kernels} == subjects_in(FOLDER / f"{release.name}.py")


@pytest.mark.parametrize("release", CATALOGUE, ids=lambda release: release.name)
def test_an_adapter_is_short(release):
    path = FOLDER / f"{release.name}.py"
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    longest = max(node.end_lineno - node.lineno + 1 for node in functions)

    assert longest <= 20


def test_a_defect_that_was_judged_by_hand_is_described():
    linked = [
        match
        for release in CATALOGUE
        for kernel in release.kernels
        for text in kernel.findings
        for match in re.findall(r"\]\(([^)]+)\)", text)
    ]

    assert [link for link in linked if not (REPORTS / link).is_file()] == []


def test_the_list_names_every_kernel():
    text = catalogue_text()

    assert all(f"{release.name}:{kernel.name} " in text for release in CATALOGUE for kernel in release.kernels)
