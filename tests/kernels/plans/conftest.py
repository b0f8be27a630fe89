"""Launches that are kept in place of being made."""

from types import SimpleNamespace

import pytest

from flashverify_kernels import plans, replay
from tests.kernels.plans.launches import KERNELS, Kernel


@pytest.fixture
def log(monkeypatch):
    found = []
    for name, module in KERNELS.items():
        monkeypatch.setattr(module, name, Kernel(getattr(module, name), found))
    monkeypatch.setattr(plans, "INTERPRETED", False)
    monkeypatch.setattr(plans, "_modes", lambda: 0)  # the corrected interpreter has one
    monkeypatch.setattr(plans, "_device", lambda tensors: 0)
    monkeypatch.setattr(plans, "_plans", {})
    monkeypatch.setattr(plans, "_recent", {})
    monkeypatch.setattr(replay, "driver", SimpleNamespace(active=SimpleNamespace(get_current_stream=lambda device: 0)))
    return found
