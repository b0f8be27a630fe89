import subprocess
import sys
from pathlib import Path

import pytest

from flashverify.errors import SubjectLoadError, UsageError
from flashverify.subjects import Subject, describe_subjects, has_gpu, load_subject, registry

TEN_LINES = """
from flashverify import Contract, Supports, subject
import torch

@subject(supports=Supports(dtypes=("fp32",), gqa=False), contract=Contract(lse_base=None), device="cpu")
def mine(p):
    return torch.softmax(p.q @ p.k.mT * p.scale, -1) @ p.v
"""


def test_a_user_subject_is_loaded_from_a_file_and_from_a_module(tmp_path, monkeypatch):
    (tmp_path / "users_kernels.py").write_text(TEN_LINES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    for spec in ("users_kernels:mine", f"{tmp_path}/users_kernels.py:mine"):
        loaded = load_subject(spec)
        assert isinstance(loaded, Subject)
        assert loaded.name == "mine"


@pytest.mark.slow
def test_a_file_beside_a_kernel_does_not_shadow_the_standard_library(tmp_path, monkeypatch):
    """In a process of its own, where neither `random` nor `colorsys` is imported yet."""
    (tmp_path / "random.py").write_text("raise RuntimeError('the wrong random')\n")
    (tmp_path / "colorsys.py").write_text(TEN_LINES)
    (tmp_path / "helper.py").write_text("scale = 2\n")
    (tmp_path / "users_kernels.py").write_text("import helper\n" + TEN_LINES)
    code = (
        "import sys\n"
        "for name in [n for n in sys.modules if n in ('random', 'colorsys')]: del sys.modules[name]\n"
        "from flashverify.subjects import load_subject\n"
        f"assert load_subject({str(tmp_path / 'users_kernels.py')!r} + ':mine').name == 'mine'\n"
        f"assert load_subject({str(tmp_path / 'colorsys.py')!r} + ':mine').name == 'mine'\n"
        "assert load_subject('users_kernels:mine') is not None\n"
        "import random, colorsys\n"
        f"assert not random.__file__.startswith({str(tmp_path)!r})\n"
        "assert colorsys.rgb_to_hsv\n"
    )
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


def test_files_of_one_name_are_two_subjects_and_a_file_is_executed_once(tmp_path):
    loaded = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same_name.py").write_text(TEN_LINES.replace("mine", folder))
        loaded.append(load_subject(f"{tmp_path / folder}/same_name.py:{folder}"))

    assert [subject.name for subject in loaded] == ["one", "two"]
    for folder, subject in zip(("one", "two"), loaded, strict=True):
        assert load_subject(f"{tmp_path / folder}/same_name.py:{folder}") is subject


def test_a_file_that_fails_to_import_is_tried_again(tmp_path):
    file = tmp_path / "half-done.py"
    file.write_text("import no_such_module_at_all\n" + TEN_LINES)
    with pytest.raises(SubjectLoadError, match="no_such_module_at_all"):
        load_subject(f"{file}:mine")

    file.write_text(TEN_LINES)
    assert load_subject(f"{file}:mine").name == "mine"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nothing", "'nothing' is not known: one of bundled"),
        ("no_such_module:x", "cannot be imported"),
        ("math:no_such_name", "no_such_name"),
        ("math:pi", "is a float, not a subject"),
        ("missing.py:x", "there is no file"),
        (":x", "is not known"),
    ],
)
def test_what_cannot_be_loaded_is_said(spec, message):
    with pytest.raises(SubjectLoadError, match=message):
        load_subject(spec)


def test_registered_subjects_are_described_without_importing_them():
    rows = {name: (available, reason) for name, _, available, reason in describe_subjects()}

    assert rows["bundled"] == (True, "")
    assert rows["sdpa-flash"] == ((True, "") if has_gpu() else (False, "needs an NVIDIA GPU"))
    code = "import sys, flashverify.subjects as s; s.describe_subjects(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_registered_subjects_load():
    for name in ("bundled", "torch-cpu", "sdpa-flash", "sdpa-cudnn", "sdpa-efficient", "sdpa-math"):
        assert load_subject(name).name == name


@pytest.mark.parametrize(
    ("devices", "library", "hidden", "expected"),
    [
        ((), True, None, False),
        (("nvidiactl",), False, None, True),
        (("nvidiactl",), True, "", False),
        (("nvidiactl", "dxg"), True, "-1", False),
        (("nvidiactl",), True, "0", True),
        (("dxg",), True, None, True),
        (("dxg",), False, None, False),
        (("dxg",), True, "-1", False),
    ],
)
def test_a_gpu_is_seen_on_linux_and_under_wsl_unless_it_is_hidden(
    devices, library, hidden, expected, tmp_path, monkeypatch
):
    for device in devices:
        (tmp_path / device).touch()
    monkeypatch.setattr(registry, "_CONTROL", tmp_path / "nvidiactl")
    monkeypatch.setattr(registry, "_WSL", tmp_path / "dxg")
    monkeypatch.setattr(registry, "_loads", {"libcuda.so.1": library}.__getitem__)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)

    assert has_gpu() is expected


def test_one_function_decides_whether_there_is_a_gpu():
    root = Path(__file__).parents[2]
    files = [
        path for folder in ("flashverify", "kernels", "benchmarks", "tests") for path in (root / folder).rglob("*.py")
    ]
    naming = {path.relative_to(root).as_posix() for path in files if "/dev/" + "nvidiactl" in path.read_text("utf-8")}

    assert naming == {"flashverify/subjects/registry.py"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "torch.zeros(1, device='cuda')",
            r"cannot be imported: .*CUDA.*users_file.py:2\). Import it inside `with flashverify.pretend_cuda",
        ),
        (
            "from flashverify import Supports; Supports(head_dims=(16,))",
            r"keyword argument 'head_dims' \(.*users_file.py:2\)\. Supports has .*dim_pairs",
        ),
        ("1 / 0", r"cannot be imported: ZeroDivisionError: division by zero \(.*users_file.py:2\)$"),
    ],
)
def test_an_exception_of_a_file_that_is_imported_names_the_line(tmp_path, line, message):
    if "cuda" in line and has_gpu():
        pytest.skip("there is a GPU")
    (tmp_path / "users_file.py").write_text(f"import torch\n{line}\n")

    with pytest.raises(SubjectLoadError, match=message):
        load_subject(f"{tmp_path}/users_file.py:mine")


def test_a_wrong_declaration_in_a_file_is_told_as_it_is(tmp_path):
    (tmp_path / "users_supports.py").write_text("import flashverify\nflashverify.Supports(dtypes=('int8',))\n")

    with pytest.raises(UsageError, match=r"^Supports\(dtypes="):
        load_subject(f"{tmp_path}/users_supports.py:mine")
