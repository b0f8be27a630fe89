"""What can be said of a subject's name without importing anything."""

import sys

import pytest

from flashverify.errors import SubjectLoadError
from flashverify.subjects import load_subject
from flashverify.subjects.finding import require_findable
from flashverify.subjects.registry import REGISTERED


@pytest.mark.parametrize("spec", [entry.name for entry in REGISTERED])
def test_registered_names_are_found(spec):
    require_findable(spec)


def test_modules_and_files_are_found_and_not_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package_of_mine").mkdir()
    for name in ("kernel_of_mine.py", "package_of_mine/__init__.py", "package_of_mine/kernel.py"):
        (tmp_path / name).write_text("raise RuntimeError\n", encoding="utf-8")
    path = list(sys.path)
    for spec in ("kernel_of_mine:f", "kernel_of_mine.py:f", "package_of_mine.kernel:f", "package_of_mine:kernel.f"):
        require_findable(spec)

    assert not {"kernel_of_mine", "package_of_mine"} & sys.modules.keys()
    assert sys.path == path


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("bundle", "is not known: one of bundled, .*; did you mean 'bundled'?"),
        ("no_such_module_at_all:f", "No module named 'no_such_module_at_all'"),
        ("package_of_mine.kernal:f", "No module named 'package_of_mine.kernal'"),
        ("no_such_file.py:f", "there is no file 'no_such_file.py'"),
        ("kernel_of_mine:", "is not known"),
    ],
)
def test_what_is_certainly_not_there_is_refused(tmp_path, monkeypatch, spec, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package_of_mine").mkdir()
    (tmp_path / "package_of_mine/__init__.py").write_text("", encoding="utf-8")
    for ask in (require_findable, load_subject):
        with pytest.raises(SubjectLoadError, match=words):
            ask(spec)


@pytest.mark.parametrize("text", ["import sys; sys.modules", "__path__ = []"])
def test_a_package_that_makes_its_own_modules_is_left_to_the_import(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package_of_mine").mkdir()
    (tmp_path / "package_of_mine/__init__.py").write_text(text, encoding="utf-8")

    require_findable("package_of_mine.made_up:f")
