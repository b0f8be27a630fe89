import subprocess
import sys
from pathlib import Path

import pytest

from flashverify.errors import SubjectLoadError
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
