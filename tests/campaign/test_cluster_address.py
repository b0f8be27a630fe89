"""Which addresses are those of a cluster, and what its machines are sent."""

from pathlib import Path

import pytest

from flashverify.campaign.cluster import connecting
from flashverify.campaign.cluster.address import require_reachable
from flashverify.errors import NoVerdictError, UsageError


@pytest.mark.parametrize("address", [":1", "h:", "h:1/x", "h/x:1", "h:-1"])
def test_an_address_has_a_host_and_a_port(address):
    with pytest.raises(UsageError, match=r"RAY_ADDRESS=.* is not accepted: HOST:PORT"):
        require_reachable(address)


def test_a_port_that_is_none_is_no_way_and_brackets_are_of_the_address(monkeypatch):
    asked = []
    with pytest.raises(NoVerdictError, match=r"no way to the Ray cluster: RAY_ADDRESS='127\.0\.0\.1:70000'"):
        require_reachable("127.0.0.1:70000")
    made = type("Made", (), {"close": lambda self: asked.append("closed")})
    monkeypatch.setattr("socket.create_connection", lambda at, timeout: asked.append((at, timeout)) or made())
    require_reachable("[::1]:80")

    assert asked == [(("::1", 80), 20.0), "closed"]


def test_what_is_installed_is_not_sent_and_a_run_folder_elsewhere_is_not_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    installed = tmp_path / "lib" / "site-packages"
    installed.mkdir(parents=True)
    for folder in (tmp_path, installed):
        (folder / "mine.py").write_text("def kernel(p): ...\n", encoding="utf-8")
    inside, outside = "mine.py:kernel", f"{installed}/mine.py:kernel"

    assert connecting.shipped((outside,), tmp_path, tmp_path / "out") == {}
    assert connecting.shipped(("bundled",), tmp_path, tmp_path / "out") == {}
    sent = connecting.shipped((outside, inside), tmp_path, Path("/elsewhere"))
    assert sent == {"working_dir": str(tmp_path), "excludes": list(connecting._NOT_SHIPPED)}
    assert {".git", ".venv", "out", "*.safetensors"} <= set(connecting._NOT_SHIPPED)
