"""Where compiled kernels are kept between runs."""

import os

from flashverify.campaign.kernel_cache import CACHE_VARIABLE, cache_environment, folder_size, torch_environment


def folder(tmp_path, *specs):
    return cache_environment(specs, {"XDG_CACHE_HOME": str(tmp_path)})[CACHE_VARIABLE]


def test_a_folder_that_is_given_is_taken(tmp_path):
    found = cache_environment(("bundled",), {CACHE_VARIABLE: "/given"})

    assert found == {CACHE_VARIABLE: "/given"} | torch_environment("/given", {})
    assert set(torch_environment("/given", {}).values()) == {"/given/torch", "1"}


def test_what_is_set_for_torchs_compiler_stays(tmp_path):
    given = {"XDG_CACHE_HOME": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": "/mine"}

    assert cache_environment(("bundled",), given)["TORCHINDUCTOR_CACHE_DIR"] == "/mine"


def test_each_source_of_subjects_has_a_folder_that_stays(tmp_path):
    source = tmp_path / "mine.py"
    source.write_text("kernel = 1\n")
    first, other = folder(tmp_path, f"{source}:kernel"), folder(tmp_path, "bundled")

    assert first != other
    assert os.path.isdir(first)
    assert first == folder(tmp_path, f"{source}:kernel")
    source.write_text("kernel = 2\n")
    assert first != folder(tmp_path, f"{source}:kernel")


def test_of_many_folders_those_used_last_are_kept(tmp_path):
    made = [folder(tmp_path, f"module:subject{n}") for n in range(12)]
    for age, path in enumerate(reversed(made)):
        if os.path.isdir(path):
            os.utime(path, (1e9 - age, 1e9 - age))
    newest = folder(tmp_path, "module:another")

    kept = {path for path in (*made, newest) if os.path.isdir(path)}
    assert len(kept) == 8
    assert {newest, *made[-7:]} == kept


def test_a_folder_that_cannot_be_made_leaves_tritons_own(tmp_path):
    (tmp_path / "flashverify").write_text("a file")
    assert cache_environment(("bundled",), {"XDG_CACHE_HOME": str(tmp_path)}) == {}


def test_the_size_is_that_of_all_files(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "kernel").write_bytes(b"x" * 1000)
    (tmp_path / "kernel").write_bytes(b"x" * 24)
    assert folder_size(str(tmp_path)) == 1024
    assert folder_size("") == 0
