from types import SimpleNamespace

import pytest

from flashverify.campaign.commands.campaign import campaign_config
from flashverify.campaign.commands.settings import KEYS, Settings, load_settings
from flashverify.campaign.environment import resolve_numerics
from flashverify.campaign.store.resume import check_resumable
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.errors import ConfigError, UsageError
from flashverify.judge.record import RunRecord
from tests.campaign.notes import following, schedule


def pyproject(folder, text):
    (folder / "pyproject.toml").write_text(f"[tool.flashverify]\n{text}\n", encoding="utf-8")


def test_the_command_line_wins_over_variables_over_the_file(tmp_path):
    pyproject(tmp_path, 'seed = 1\nworkers = 1\nout = "file"\nsubject = ["a", "b"]')
    found = load_settings({"seed": "3"}, {"FLASHVERIFY_SEED": "2", "FLASHVERIFY_WORKERS": "2"}, tmp_path)

    assert (found.seed, found.workers, found.out, found.subject, found.device) == (3, 2, "file", ("a", "b"), "auto")


def test_hours_and_minutes_are_one_setting(tmp_path):
    pyproject(tmp_path, "hours = 8")

    assert load_settings({}, {}, tmp_path).seconds == 28800
    assert load_settings({"minutes": "1.5"}, {"FLASHVERIFY_HOURS": "1"}, tmp_path).seconds == 90
    assert load_settings({"minutes": "30", "hours": "1"}, {}, tmp_path).seconds == 5400


def test_the_file_is_looked_up_towards_the_root(tmp_path):
    pyproject(tmp_path, "seed = 4")
    (tmp_path / "a" / "b").mkdir(parents=True)

    assert load_settings({}, {}, tmp_path / "a" / "b").seed == 4


@pytest.mark.parametrize(
    "text",
    [
        "sede = 1",
        'seed = "x"',
        'seed = "1_6"',
        'seed = "\u0663"',
        "seed = 1.5",
        "seed = true",
        "minutes = [1]",
        "subject = [1]",
        'device = "tpu"',
        "device = [1]",
        "out = {a = 1}",
        "shrink = 3",
        "seed = [",
    ],
)
def test_the_file_is_checked(tmp_path, text):
    pyproject(tmp_path, text)

    with pytest.raises(ConfigError) as raised:
        load_settings({}, {}, tmp_path)
    assert text.split()[0] in str(raised.value) or "cannot read" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tool = 3", "tool=3"),
        ("[tool]\nflashverify = 3", "flashverify=3"),
        ("[[tool.flashverify]]\nseed = 1", "flashverify="),
    ],
)
def test_a_file_whose_table_is_none_is_refused(tmp_path, text, named):
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=rf"{named}.*pyproject.toml is not accepted: a table, \[tool.flashverify\]"):
        load_settings({}, {}, tmp_path)


def test_unknown_variables_are_errors(tmp_path):
    with pytest.raises(ConfigError, match=r"FLASHVERIFY_SEDE; accepted: .*FLASHVERIFY_SEED"):
        load_settings({}, {"FLASHVERIFY_SEDE": "1"}, tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hours", "nan"),
        ("hours", "1e308"),
        ("minutes", "1_0"),
        ("minutes", "0"),
        ("max-cases", "0"),
        ("seed", "-1"),
        ("seed", str(2**64)),
        ("workers", "x"),
        ("workers", "0"),
        ("out", ""),
        ("out", "x" * 300),
        ("out", "x/" * 2500),
        ("out", "a\udcff"),
        ("device", "tpu"),
        ("subject", ("a", "a")),
    ],
)
def test_refusals_name_option_value_and_what_is_accepted(tmp_path, key, value):
    with pytest.raises(UsageError) as raised:
        load_settings({key: value}, {}, tmp_path)
    message = str(raised.value)
    assert message == f"--{key}={value!r} is not accepted: {KEYS[key][1]}"


def test_numerics_belong_to_the_interpreter(tmp_path):
    pyproject(tmp_path, 'numerics = "a100"')

    assert load_settings({}, {}, tmp_path).numerics == "a100"
    assert load_settings({"numerics": "ieee"}, {"FLASHVERIFY_NUMERICS": "h100"}, tmp_path).numerics == "ieee"
    assert [resolve_numerics(name, "cpu") for name in (None, "h100+2ulp")] == ["ieee", "h100+2ulp"]
    assert resolve_numerics("ieee", "cuda") == "ieee"
    with pytest.raises(UsageError, match="numerics='h100' is not accepted: kernels are compiled"):
        resolve_numerics("h100", "cuda")
    with pytest.raises(UsageError, match="--numerics='h200' is not accepted: one of ieee, h100"):
        load_settings({"numerics": "h200"}, {}, tmp_path)


def test_what_ends_a_search_and_shrinking_are_settings_like_the_others(tmp_path):
    pyproject(tmp_path, "fail-fast = true\nshrink = false\nmax-findings = 4")
    found = load_settings({"max-findings": "2"}, {"FLASHVERIFY_SHRINK": "on"}, tmp_path)

    assert (found.fail_fast, found.shrink, found.max_findings) == (True, True, 2)
    with pytest.raises(ConfigError, match="FLASHVERIFY_FAIL_FAST='maybe' is not accepted: true or false"):
        load_settings({}, {"FLASHVERIFY_FAIL_FAST": "maybe"}, tmp_path)


def test_a_search_shrinks_and_a_matrix_does_not_unless_it_is_said(tmp_path):
    given = {"subject": ("torch-cpu",), "device": "cpu", "out": str(tmp_path / "run")}
    plain, short = Settings(**given), Settings(**given, shrink=False, fail_fast=True, max_findings=7)

    assert [campaign_config(kind, plain).shrink for kind in ("run", "fuzz")] == [False, True]
    assert campaign_config("run", Settings(**given, shrink=True)).shrink
    found = campaign_config("fuzz", short)
    assert (found.shrink, found.max_findings) == (False, 1)


def test_the_profile_of_drawn_cases_comes_from_every_layer(tmp_path):
    pyproject(tmp_path, 'profile = "gpu"')

    assert load_settings({}, {}, tmp_path).profile == "gpu"
    assert load_settings({}, {"FLASHVERIFY_PROFILE": "cpu"}, tmp_path).profile == "cpu"
    assert load_settings({"profile": "long"}, {"FLASHVERIFY_PROFILE": "cpu"}, tmp_path).profile == "long"
    with pytest.raises(UsageError, match="--profile='huge' is not accepted: one of cpu, gpu, long"):
        load_settings({"profile": "huge"}, {}, tmp_path)


def test_a_search_draws_by_its_profile_and_goes_on_with_no_other(tmp_path):
    config = CampaignConfig(kind="fuzz", subjects=("mine",), out=tmp_path, device="cpu", workers=1, profile="long")
    task = following(schedule(tmp_path, subjects=("mine",), profile="long"))
    stored = SimpleNamespace(record=RunRecord("fuzz", ("mine",), 0, {}, profile="cpu"), summary=None)

    assert task.profile == "long"
    with pytest.raises(UsageError, match="it holds a run with profile=cpu, not long"):
        check_resumable(stored, config)
