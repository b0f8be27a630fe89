"""What a marker becomes, without a process: groups, cases of a list, names of subjects, and refusals."""

import re
import subprocess
import sys
import textwrap
import types

import pytest

# pytester forgets the modules that a run imported; numpy cannot be imported twice, so all of them are there before.
import flashverify.pytest_plugin.collection
import flashverify.pytest_plugin.header
import flashverify.pytest_plugin.running
import flashverify.pytest_plugin.summary
from flashverify.campaign.gpus import visible_gpus
from flashverify.errors import UsageError
from flashverify.pytest_plugin.gpus import gpu_of
from flashverify.pytest_plugin.naming import name_of
from flashverify.pytest_plugin.request import asked_of
from flashverify.pytest_plugin.stash import leave_word, shared_folder
from tests.pytest_plugin.conftest import PLUGIN, marked

pytest_plugins = ["pytester"]


@pytest.fixture
def project(pytester, monkeypatch):
    """Runs pytest on a test file inside this process."""
    monkeypatch.setenv("FLASHVERIFY_DEVICE", "cpu")

    def run(source, *arguments):
        pytester.makepyfile(test_it=f"import pytest\n\n{source}")
        return pytester.runpytest_inprocess(*PLUGIN, "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *arguments)

    return run


def collected(project, source, *arguments):
    done = project(source, "--collect-only", "-q", *arguments)
    return [line.partition("::")[2] for line in done.outlines if "::" in line]


@pytest.mark.parametrize(
    ("arguments", "options", "names"),
    [
        ("'k:m', cases=50", (), ["cases-0-19", "cases-20-39", "cases-40-49"]),
        ("'k:m'", (), [f"cases-{n}-{n + 19}" for n in range(0, 200, 20)]),
        ("'k:m'", ("--flashverify-cases", "7"), ["cases-0-6"]),
        ("'k:m', cases=['fv1 seq_k=9']", ("--flashverify-cases", "7"), ["0: seq_k=9"]),
        ("'k:m', cases=['fv1 seq_k=9', 'fv1', 'fv1 seq_k=9']", (), ["0: seq_k=9", "1: default"]),
        ("subject='k:m', cases='standard'", (), [f"standard-{n}-of-16" for n in range(1, 17)]),
    ],
)
def test_a_marked_test_becomes_one_per_group_or_per_listed_case(project, arguments, options, names):
    assert collected(project, marked(arguments), *options) == [f"test_mine[{name}]" for name in names]


def test_a_test_that_takes_a_case_becomes_one_per_case(project):
    found = collected(project, marked("'k:m', cases=3", parameters="attention_case"))

    assert found == [f"test_mine[case-{n}]" for n in range(3)]


def test_the_groups_of_another_parameter_are_multiplied(project):
    source = "@pytest.mark.parametrize('n', [1, 2])\n" + marked("'k:m', cases=40", parameters="n")

    assert len(collected(project, source)) == 4


@pytest.mark.parametrize(
    ("positional", "named", "message"),
    [
        ((), {}, "names no subject"),
        (("k:m", "other"), {}, "is not accepted: flashverify(subject, cases=200, profile=None, checks=None)"),
        (("k:m",), {"number": 3}, "number= is not accepted by @pytest.mark.flashverify"),
        (("k:m",), {"cases": 0}, "cases=0 is not accepted: an integer >= 1"),
        (("k:m",), {"cases": True}, "cases=True is not accepted: a number of cases, 'standard', or a list"),
        (("k:m",), {"cases": ["seq_q=3"]}, "seq_q=3"),
        (("k:m",), {"profile": "huge"}, "profile='huge' is not accepted: one of cpu, gpu"),
        (("k:m",), {"checks": "accuracy"}, "checks='accuracy' is not accepted: a list of names"),
        (("k:m",), {"checks": ["speed"]}, "checks: 'speed' is not accepted: one of memory, accuracy"),
    ],
)
def test_a_marker_that_is_not_accepted_is_one_clear_error(positional, named, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        asked_of(pytest.mark.flashverify(*positional, **named).mark)


@pytest.mark.parametrize(
    ("options", "name"),
    [({"number": "few"}, "--flashverify-cases='few'"), ({"profile": "huge"}, "--flashverify-profile='huge'")],
)
def test_an_option_that_is_not_accepted_is_one_clear_error(options, name):
    with pytest.raises(UsageError, match=f"{name} is not accepted"):
        asked_of(pytest.mark.flashverify("k:m").mark, **options)


def test_an_error_of_a_marker_shows_no_frame(project):
    done = project(marked("object()"))

    assert done.ret == pytest.ExitCode.INTERRUPTED
    assert "no module holds it under a name" in done.stdout.str()
    assert "pytest_plugin" not in done.stdout.str()
    assert "During handling" not in done.stdout.str()


def test_a_seed_that_is_not_accepted_is_one_clear_error(project):
    done = project(marked("'k:m', cases=1"), "--flashverify-seed", "-1")

    assert done.ret == pytest.ExitCode.INTERRUPTED
    assert "--flashverify-seed='-1' is not accepted: an integer >= 0" in done.stdout.str()


def test_a_subject_is_named_by_the_module_that_holds_it_or_by_its_file(tmp_path, monkeypatch):
    text = "class Kernel:\n    pass\nmine = Kernel()\n"
    (tmp_path / "held_by_module.py").write_text(text)
    (tmp_path / "apart").mkdir()
    (tmp_path / "apart" / "held_by_file.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib.util

    import held_by_module

    spec = importlib.util.spec_from_file_location("apart.held_by_file", tmp_path / "apart" / "held_by_file.py")
    apart = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(apart)
    monkeypatch.setitem(sys.modules, "elsewhere.held_by_file", apart)
    apart.__name__ = "elsewhere.held_by_file"

    assert name_of(held_by_module.mine, apart, tmp_path).load == "held_by_module:mine"
    assert name_of(apart.mine, apart, tmp_path).load == f"{tmp_path}/apart/held_by_file.py:mine"
    assert name_of(apart.mine, apart, tmp_path).shown == "apart/held_by_file.py:mine"
    assert name_of("kernels/k.py:mine", apart, tmp_path).load == f"{tmp_path}/kernels/k.py:mine"


def test_workers_take_turns_over_the_visible_gpus(tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()

    assert visible_gpus({}, tmp_path) == ("0", "1", "2")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "3, GPU-abc"}, tmp_path) == ("3", "GPU-abc")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "-1"}, tmp_path) == ()
    assert [gpu_of(f"gw{n}", ("3", "GPU-abc")) for n in (0, 1, 2, 11)] == ["3", "GPU-abc", "3", "GPU-abc"]
    assert gpu_of("", ("0", "1")) == gpu_of("gw1", ("0",)) == ""


def test_loading_the_plugin_imports_nothing_that_takes_time():
    code = """
        import sys
        import pytest
        before = set(sys.modules)
        import flashverify.pytest_plugin
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        assert new == {"flashverify"}, new
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_workers_of_xdist_without_a_marked_test_cost_no_summary(monkeypatch, tmp_path):
    config = types.SimpleNamespace(stash=pytest.Stash())
    monkeypatch.setitem(sys.modules, "flashverify.pytest_plugin.summary", None)  # its import would fail
    folder = shared_folder(config)

    flashverify.pytest_plugin.pytest_terminal_summary(None, config)
    leave_word(config)
    with pytest.raises(ImportError):
        flashverify.pytest_plugin.pytest_terminal_summary(None, config)
    flashverify.pytest_plugin.pytest_unconfigure(config)
    assert not folder.exists()
