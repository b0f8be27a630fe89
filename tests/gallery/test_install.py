"""Fetching and unpacking: Python files alone, once, and one clear error where nothing can be fetched."""

import pytest

from flashverify.errors import NoVerdictError
from flashverify.gallery.catalogue import release
from flashverify.gallery.install import install, unpack
from flashverify.gallery.place import VERSION, modules_of


@pytest.mark.slow
def test_a_wheel_is_fetched_once_and_its_python_files_are_kept(shelf, wheel):
    folder = install(release("fasterkernels"))
    wheel.unlink()

    assert install(release("fasterkernels")) == folder == shelf / "fasterkernels-0.2.0"
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    assert names == {"triton_fa2.py", "METADATA", "WHEEL", "RECORD"}
    assert not (shelf / "outside.py").exists()
    assert [path.name for path in shelf.iterdir()] == [folder.name]


@pytest.mark.slow
def test_where_nothing_can_be_fetched_the_error_names_what_is_missing(shelf):
    with pytest.raises(
        NoVerdictError, match=r"fasterkernels==0\.2\.0 was not fetched .* package index that pip reaches"
    ):
        install(release("fasterkernels"))
    assert list(shelf.iterdir()) == []


def test_a_damaged_archive_leaves_nothing_behind(tmp_path):
    (tmp_path / "a.whl").write_bytes(b"no archive")

    with pytest.raises(NoVerdictError, match=r"a\.whl cannot be unpacked"):
        unpack(tmp_path / "a.whl", tmp_path / "files")
    assert not (tmp_path / "files").exists()


def test_an_adapter_without_its_release_says_how_to_install_it(shelf, monkeypatch):
    monkeypatch.setenv(VERSION + "VLLM", "9.9")

    with pytest.raises(NoVerdictError, match=r"vllm 9\.9 is not installed .*flashverify gallery vllm"):
        modules_of(release("vllm"))
