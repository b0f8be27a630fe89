"""The settings of `make machines`, and the options of conftest.py that they rest on."""

import importlib
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def machines(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(HERE))
    loaded = importlib.import_module("machines")
    monkeypatch.setattr(loaded, "ROOT", tmp_path)
    yield loaded
    for name in ("machines", "conftest"):
        sys.modules.pop(name, None)


def test_every_setting_has_a_name_of_its_own_and_tests_that_exist(machines):
    known = machines.settings()

    assert len({setting.name for setting in known}) == len(known) > 20
    assert all((HERE.parent / path).exists() for setting in known for path in setting.tests)


def test_a_setting_that_the_processor_cannot_run_is_skipped_with_the_reason(machines):
    setting = machines.Setting("other", {"SEEN": "this"}, probe="import os; print(os.environ['SEEN'])", expected="that")

    assert machines.judge(setting, None) == (
        True,
        "other              skipped: it would need 'that'; this machine has 'this'",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "passes", "counts"),
    [pytest.param("assert True", True, ["1", "0"], marks=pytest.mark.thorough), ("assert 0", False, ["0", "1"])],
)
def test_a_setting_passes_if_every_test_does(machines, tmp_path, body, passes, counts):
    (tmp_path / "test_one.py").write_text(f"def test_one():\n    {body}\n", encoding="utf-8")
    options = SimpleNamespace(tests=["test_one.py"], all=False, processes=0)

    good, line = machines.judge(machines.Setting("one"), options)

    assert good is passes
    assert line.split()[:3] == ["one", *counts]
    assert "test_one" in (tmp_path / "out/machines/one.txt").read_text(encoding="utf-8") or passes


@pytest.mark.slow
@pytest.mark.thorough
def test_a_setting_under_which_pytest_does_not_run_is_no_pass(machines, tmp_path):
    (tmp_path / "test_one.py").write_text("import no_such_module\n", encoding="utf-8")
    options = SimpleNamespace(tests=["no_such_file.py"], all=False, processes=0)

    good, line = machines.judge(machines.Setting("one"), options)

    assert not good
    assert "no verdict" in line


def test_an_order_is_drawn_from_its_seed(machines):
    conftest = importlib.import_module("conftest")

    def order(seed):
        items = list(range(100))
        asked = SimpleNamespace(keyword="", markexpr="thorough")
        config = SimpleNamespace(getoption=lambda _: seed, option=asked, args=[])
        conftest.pytest_collection_modifyitems(config, items)
        return items

    assert order(None) == list(range(100)) == sorted(order(1))
    assert order(1) == order(1) != order(2)


@pytest.mark.parametrize(
    ("event", "arguments", "refused"),
    [
        ("socket.connect", (SimpleNamespace(family=socket.AF_INET), ("192.0.2.1", 80)), True),
        ("socket.connect", (SimpleNamespace(family=socket.AF_INET), ("127.0.0.1", 80)), False),
        ("socket.connect", (SimpleNamespace(family=socket.AF_UNIX), "socket"), False),
        ("socket.getaddrinfo", ("example.org", 80), True),
        ("socket.getaddrinfo", ("localhost", 80), False),
        ("open", ("example.org",), False),
    ],
)
def test_offline_refuses_connections_to_other_machines(machines, event, arguments, refused):
    refuse = importlib.import_module("conftest")._refuse_the_network
    if refused:
        with pytest.raises(PermissionError, match="--offline"):
            refuse(event, arguments)
    else:
        refuse(event, arguments)
