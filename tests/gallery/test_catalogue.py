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


def functions_in(module: str) -> list[ast.FunctionDef]:
    """The functions of a module of adapters that `@subject` decorates."""
    functions = [
        node for node in ast.parse((FOLDER / f"{module}.py").read_text()).body if isinstance(node, ast.FunctionDef)
    ]
    return [
        f for f in functions if any(getattr(getattr(d, "func", None), "id", "") == "subject" for d in f.decorator_list)
    ]


def names_in(module: str) -> set[str]:
    """The names of a module's subjects: decorated functions, and what the adapters of flashverify make."""
    body = ast.parse((FOLDER / f"{module}.py").read_text()).body
    makers = {
        alias.name
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module == "flashverify.adapters"
        for alias in node.names
    }
    made = {
        node.targets[0].id
        for node in body
        if isinstance(node, ast.Assign) and getattr(getattr(node.value, "func", None), "id", "") in makers
    }
    return {f.name for f in functions_in(module)} | made


MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


def test_each_module_of_adapters_belongs_to_a_release_and_its_subjects_are_the_kernels_of_the_catalogue():
    declared = {(kernel.module or release.name, kernel.name) for release in CATALOGUE for kernel in release.kernels}

    assert sorted(declared) == sorted((module, name) for module in MODULES for name in names_in(module))


@pytest.mark.parametrize("module", MODULES)
def test_an_adapter_takes_fifteen_lines_at_most(module):
    lengths = {f.name: f.end_lineno - f.lineno + 1 for f in functions_in(module)}

    assert {name: length for name, length in lengths.items() if length > 16} == {}


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
