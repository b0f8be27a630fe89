"""What `import flashverify` shows: complete, sorted, documented, without torch, and never hidden by a submodule."""

import ast
import enum
import importlib
import importlib.metadata
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import flashverify

SOURCE = Path(flashverify.__file__)


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=SOURCE.parents[1])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_names_are_sorted_and_each_is_the_object_of_its_home():
    assert flashverify.__all__ == sorted(set(flashverify.__all__))
    for name in flashverify.__all__:
        found = getattr(flashverify, name)
        assert found.__name__ == name
        home = importlib.import_module(found.__module__)
        assert getattr(home, name) is found
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = flashverify.nothing


def test_type_checkers_see_the_same_names_from_the_same_homes():
    [block] = [node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If) and node.orelse == []][
        :1
    ]
    seen = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            [alias] = node.names
            assert alias.asname == alias.name
            seen[alias.name] = node.module

    assert seen == flashverify._HOMES


def test_dir_shows_the_names_and_no_helpers():
    shown = {name for name in dir(flashverify) if not name.startswith("__")}

    assert shown == set(flashverify.__all__)
    assert "__version__" in dir(flashverify)


def test_the_version_is_that_of_the_distribution():
    assert flashverify.__version__ == importlib.metadata.version("flashverify")


def test_every_error_is_public():
    errors = importlib.import_module("flashverify.errors")

    assert set(errors.__all__) <= set(flashverify.__all__)


def test_the_import_needs_neither_torch_nor_triton_and_few_names_do():
    light = [
        "parse_case",
        "Case",
        "Mask",
        "Supports",
        "Contract",
        "subject",
        "UsageError",
        "judge_case",
        "oracle",
        "cases",
    ]
    python(
        f"import sys, flashverify\nfor name in {light}: getattr(flashverify, name)\n"
        "assert not {'torch', 'triton', 'hypothesis', 'numpy'} & set(sys.modules), set(sys.modules) & {'torch', 'numpy'}"
    )


@pytest.mark.slow
def test_no_submodule_hides_a_name():
    found = python(
        "import importlib, os, pkgutil, sys\n"
        "os.environ['TRITON_INTERPRET'] = '1'\n"
        "import flashverify\n"
        "count = 0\n"
        "for module in pkgutil.walk_packages(flashverify.__path__, 'flashverify.'):\n"
        "    other = ('flashverify.gallery.kernels.', 'flashverify.campaign.cluster.ray_cluster')\n"
        "    if not module.name.endswith('__main__') and not module.name.startswith(other):\n"
        "        importlib.import_module(module.name)\n"
        "        count += 1\n"
        "for name in flashverify.__all__:\n"
        "    value = getattr(flashverify, name)\n"
        "    assert type(value).__name__ != 'module', name\n"
        "    assert value is getattr(sys.modules[flashverify._HOMES[name]], name) and value.__name__ == name, name\n"
        "print(count)\n"
    )
    assert int(found) > 200


def documented(value) -> set[str]:
    """Parameters and fields that the docstring of a public object must explain one by one."""
    if inspect.isclass(value) and (issubclass(value, BaseException) or issubclass(value, enum.Enum)):
        return set()
    if value is flashverify.AttentionOptions:
        return set(value.__annotations__)
    if inspect.isclass(value):
        fields = getattr(value, "__dataclass_fields__", None) or getattr(value, "__struct_fields__", ())
        return set(fields)
    options = set(flashverify.AttentionOptions.__annotations__)
    return set(inspect.signature(value).parameters) - (options if "options:" in value.__doc__ else set())


@pytest.mark.parametrize("name", flashverify.__all__)
def test_every_name_is_documented(name):
    value = getattr(flashverify, name)
    text = inspect.getdoc(value) or ""

    assert re.match(r"[^\n]+\.( |$|\n)", text), "the first line is a sentence"
    explained = set(re.findall(r"^ {4}(\w+(?:, \w+)*): ", text, re.MULTILINE))
    explained = {word for words in explained for word in words.split(", ")}
    assert documented(value) <= explained
    if inspect.isfunction(value):
        assert "Returns:" in text or "Yields:" in text or inspect.signature(value).return_annotation in (None, "None")
        assert "Raises:" in text
