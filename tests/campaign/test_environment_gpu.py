"""Which architecture the GPUs of a machine have, asked of NVIDIA's tool."""

import pytest

from flashverify.campaign import environment


@pytest.mark.parametrize(
    ("printed", "expected"),
    [("9.0\\n", "sm_90"), ("9.0\\n9.0\\n", "sm_90"), ("10.0\\n", "sm_100"), ("8.0\\n9.0\\n", ""), ("[N/A]\\n", "")],
)
def test_all_gpus_must_have_one(tmp_path, monkeypatch, printed, expected):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nprintf '{printed}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert environment.architecture() == expected


def test_without_the_tool_nothing_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.architecture() == ""
