"""`flashverify mutants`: the real kernels, and what the command refuses."""

import json

import pytest
from click.testing import CliRunner

from flashverify.cli import main
from flashverify.errors import UsageError
from flashverify.mutants.bank import BANK, CONTROLS, CURATED
from flashverify.mutants.runner.select import select
from flashverify.subjects import has_gpu


def run(*arguments):
    result = CliRunner().invoke(main, ["mutants", *arguments])
    return result.exit_code, result.output


@pytest.mark.slow
@pytest.mark.skipif(has_gpu(), reason="each mutant would be compiled anew")
@pytest.mark.parametrize("controls", [(), pytest.param(("tiles_started_in_order",), marks=pytest.mark.thorough)])
def test_a_defect_is_found_and_a_control_stays_quiet(tmp_path, controls):
    names = ("lse_in_the_wrong_base", *controls, "contraction_in_the_forward")
    only = [word for name in names for word in ("--only", name)]
    settings = ("--cases", "4", "--limit", "6", "--workers", "1", "--out", str(tmp_path / "run"), "--json")

    code, output = run("--bank", "curated", *only, *settings)

    figures = json.loads(output.splitlines()[-1])
    assert (code, figures["exit_code"]) == (0, 0)
    assert tuple(
        len(v) if isinstance(v := figures["curated"][k], list) else v for k in ("found", "survivors", "not_run")
    ) == (1, 0, 1)
    assert tuple(figures["controls"][key] for key in ("total", "quiet", "false_alarms")) == (
        len(controls),
        len(controls),
        [],
    )
    assert {"curated", "generated", "controls", "seconds", "elements", "checks", "seed", "out"} <= figures.keys()
    assert figures["seconds"]["median"] > 0 < figures["elements"]["median"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "no_such_mutant"), "only='no_such_mutant' is not accepted: no mutant of the bank 'curated'"),
        (("--bank", "huge"), "bank='huge' is not accepted: one of curated, generated, all"),
        (("--device", "tpu"), "device='tpu' is not accepted: one of auto, cpu, cuda"),
        (("--out", ""), "--out='' is not accepted: a folder"),
        (("--limit", "0"), "--limit"),
    ],
)
def test_what_is_not_accepted_is_named(arguments, message):
    code, output = run("--bank", "curated", *arguments)

    assert code == 2
    assert message in output
    assert len(output.splitlines()) == 1


def test_a_sample_is_drawn_by_the_seed():
    first, same, other = (select("curated", sample=9, seed=seed) for seed in (1, 1, 2))

    assert len(first) == 9
    assert first == same != other
    assert len(CURATED) + len(CONTROLS) == len(select("curated", sample=10_000))


def test_controls_are_counted_apart_from_defects():
    banks = {mutant.name: bank for mutant, bank in select("curated")}

    assert {"control"} == {banks[mutant.name] for mutant in CONTROLS}
    assert {"curated"} == {banks[mutant.name] for mutant in BANK}


def test_a_name_that_stands_for_two_mutants_is_refused(monkeypatch):
    monkeypatch.setattr("flashverify.mutants.bank.CONTROLS", (*CONTROLS, BANK[0]))

    with pytest.raises(UsageError, match=f"stand for several: {BANK[0].name}"):
        select("curated")
