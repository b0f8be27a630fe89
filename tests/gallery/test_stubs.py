"""Packages without their `__init__`, and modules that are not installed."""

import importlib
import sys

import pytest

from flashverify.gallery.stubs import Anything, import_without


@pytest.fixture
def clean():
    before, path, modules = list(sys.meta_path), list(sys.path), set(sys.modules)
    yield
    sys.meta_path[:], sys.path[:] = before, path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_a_bare_package_does_not_run_its_init_and_its_modules_load(tmp_path, clean):
    package = tmp_path / "heavy_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError")
    (package / "kernels.py").write_text("from heavy_package.engine.core import Engine, on\nvalue = 3\nflag = on\n")
    sys.path.insert(0, str(tmp_path))
    import_without(["heavy_package"], ["heavy_package.engine"], {"heavy_package.engine.core": {"on": 7}})

    kernels = importlib.import_module("heavy_package.kernels")

    assert (kernels.value, kernels.flag) == (3, 7)
    assert isinstance(kernels.Engine, Anything)


def test_anything_is_empty_and_decorates_without_a_trace():
    def function():
        return 1

    assert not Anything().deep.inside("x")
    assert Anything()(function) is function
    assert list(Anything()) == []
    assert Anything(answer=5).answer == 5
