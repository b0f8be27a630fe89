import importlib.util
from pathlib import Path

import pytest

from flashverify.interpreter import faithful
from flashverify.interpreter.hooks import interpreting


@pytest.fixture(scope="module")
def _session():
    if not interpreting():
        pytest.skip("kernels are compiled in this process")
    with faithful() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _interpreted(_session):
    before = _session.fallbacks.copy()
    yield
    assert _session.fallbacks == before


@pytest.fixture
def edited(monkeypatch, tmp_path):
    """Puts a kernel whose source has one place changed in the place of the kernel; edits add up."""

    def edit(kernel, before, after):
        for name in ("paper", "rabe_staats"):
            changed = tmp_path / f"edited_{name}.py"
            source = Path(importlib.import_module(f"flashverify_kernels.algorithms.{name}").__file__)
            source = changed if changed.exists() else source
            text = source.read_text(encoding="utf-8")
            if f"def {kernel}(" not in text:
                continue
            assert text.count(before) == 1
            changed.write_text(text.replace(before, after), encoding="utf-8")
            spec = importlib.util.spec_from_file_location(changed.stem, changed)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            host = {"paper": "launch", "rabe_staats": "launch_rabe_staats"}[name]
            monkeypatch.setattr(f"flashverify_kernels.algorithms.{host}.{kernel}", getattr(module, kernel))

    return edit
