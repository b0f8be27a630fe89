"""A package on disk that stands for a release: attention in plain torch, behind the functions that an adapter calls."""

import zipfile

import pytest

from flashverify.gallery.place import FOLDER

FORWARD = """
import torch

def flash_attention_2_fwd(q, k, v, sm_scale=None):
    s = (q.double() @ k.double().mT) * sm_scale
    return (torch.softmax(s, -1) @ v.double()).to(q.dtype)
"""


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """The folder of the releases, empty; nothing can be fetched."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "shelf"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return tmp_path / "shelf"


@pytest.fixture
def fake(shelf):
    """Writes a fake fasterkernels 0.2.0 whose forward is the given source."""

    def write(forward=FORWARD, version="0.2.0"):
        package = shelf / f"fasterkernels-{version}" / "fskernels"
        for module in ("triton/triton_gqa_decode", "paged_attn/triton_paged_attn"):
            (package / module).parent.mkdir(parents=True, exist_ok=True)
            (package / f"{module}.py").write_text("")
        (package / "triton" / "triton_fa2.py").write_text(forward)
        (package / "__init__.py").write_text("raise RuntimeError('what no kernel needs')")

    return write


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel of fasterkernels 0.2.0 that pip finds."""
    links = tmp_path / "links"
    links.mkdir()
    about = "fasterkernels-0.2.0.dist-info"
    files = {
        "fskernels/triton/triton_fa2.py": FORWARD,
        "fskernels/cuda/binary.so": "machine code",
        "../outside.py": "",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: fasterkernels\nVersion: 0.2.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    path = links / "fasterkernels-0.2.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("fskernels")
        for name, text in files.items():
            archive.writestr(name, text)
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return path
