"""The kill matrix: problems that concern their mutants, processes that die, records that are continued, tables that count."""

import argparse
import dataclasses
import signal

import kill_matrix
import pytest
from comparison_rules import judging
from comparison_rules.inputs import INPUTS, SUBJECTS, own_cases
from comparison_rules.judging import BOUNDS, CRASH, FULL, RULES, reject
from comparison_rules.record import Record
from comparison_rules.scheduler import run_tasks
from comparison_rules.tables import Matrix, compact, full
from comparison_rules.values import register
from comparison_rules.work import CleanTask, MutantTask
from ending_processes import act

from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.case.case import Case
from flashverify.case.masks.mask import Mask, Packed
from flashverify.case.memory.materialize import materialize
from flashverify.case.sections import REGIMES
from flashverify.case.text import format_case, parse_case
from flashverify.errors import UsageError
from flashverify.mutants import BANK, Mutant
from flashverify.subjects import has_gpu, load_subject
from flashverify.subjects.interface import Forward

MUTANT = Mutant(name="m", file="f", before="a", after="b", outputs=(), modelled_on="nothing")
BY_NAME = {inputs.name: inputs for inputs in INPUTS}


@pytest.fixture(autouse=True, scope="module")
def interpreter():
    if has_gpu():
        pytest.skip("the matrix is about interpreted kernels")
    register()
    with toolkit.open("cpu", plain=False):
        yield


def kind(needs, subject="bundled"):
    return dataclasses.replace(MUTANT, needs=needs, subject=subject)


@pytest.mark.parametrize("inputs", INPUTS, ids=lambda i: i.name)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_problems_concern_the_mutant_and_are_the_same_every_time(inputs, subject):
    loaded = load_subject(subject)
    for needs in {m.needs for m in BANK if m.subject == subject}:
        mutant = kind(needs, subject)
        cases = own_cases(inputs, loaded, mutant, 3)
        within = inputs.own is None or inputs.own >= set(needs)

        assert len(cases) == (3 if within else 0)
        assert cases == own_cases(inputs, loaded, mutant, 3)
        assert all(mutant.concerns(case) and parse_case(format_case(case)) == case for case in cases)


def test_flash_attention_does_not_test_trees():
    assert not own_cases(BY_NAME["flash-attention"], load_subject("bundled"), kind(("tree",)), 3)
    assert own_cases(BY_NAME["gpucheck"], load_subject("bundled"), kind(("tree",)), 3)


def test_the_uniform_values_are_within_ten_and_ours_are_not_drawn_from_them():
    (case,) = own_cases(BY_NAME["gpuemu"], load_subject("bundled"), kind(()), 1)
    problem, _ = materialize(case, "cpu")

    assert 9.0 < float(problem.k.abs().max()) <= 10.0
    assert "uniform-10" not in REGIMES
    register()
    assert str(parse_case(format_case(case))) == str(case)


class Changed:
    """The bundled subject with one output changed."""

    def __init__(self, change):
        self._inner, self._change = load_subject("bundled"), change

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def forward(self, problem):
        found = self._inner.forward(problem)
        return self._change(found)


CASE = Case(seq_q=33, seq_k=33, dim_qk=32, dim_v=32, dtype="bf16")


def test_every_rule_accepts_the_unmutated_kernel():
    assert reject(load_subject("bundled"), CASE, RULES) == dict.fromkeys(RULES, False)


def test_a_wrong_base_of_the_lse_is_seen_by_those_that_compare_it():
    natural = Changed(lambda f: Forward(f.o, f.lse * 1.4427, f.saved))

    found = reject(natural, CASE, RULES)

    assert {rule for rule, rejected in found.items() if rejected} == {"allclose+lse", "flex", BOUNDS, FULL}


def test_a_scale_that_is_a_thousandth_off_is_seen_by_the_bounds_alone():
    class Off(Changed):
        def forward(self, problem):
            object.__setattr__(problem.case, "scale", 1.001 / problem.case.dim_qk**0.5)
            try:
                return self._inner.forward(problem)
            finally:
                object.__setattr__(problem.case, "scale", None)

    found = reject(Off(None), CASE, RULES)

    assert {rule for rule, rejected in found.items() if rejected} == {BOUNDS, FULL}


def test_an_exception_is_seen_by_anyone():
    def fails(forward):
        raise RuntimeError("no")

    assert reject(Changed(fails), CASE, ("gpuemu", FULL)) == {"gpuemu": True, FULL: True, CRASH: True}


def ending(how):
    mutant = Mutant(name="m", file=how, before="a", after="b", outputs=(), modelled_on="nothing")
    return MutantTask(mutant, {"first": (("", ()),), "second": (("", ()),), "third": (("", ()),)})


def test_a_mutant_that_ends_its_process_is_found_and_goes_on(tmp_path):
    lines = list(run_tasks([ending("dies")], workers=2, limit=600, folder=tmp_path, rules=("a", "b"), act=act))

    assert [line["inputs"] for line in lines] == ["first", "second", "third"]
    died = {"died": signal.SIGSEGV, "first": {"a": 1, "b": 1}, "crashes": 1}
    assert lines[1] == {"mutant": "m", "inputs": "second", "cases": 1} | died
    assert not lines[0]["first"]
    assert not lines[2]["first"]


def test_a_mutant_that_never_ends_is_found(tmp_path):
    lines = list(run_tasks([ending("hangs")], workers=1, limit=0, folder=tmp_path, rules=("a",), act=act))

    assert [(line["inputs"], line["died"], line["first"]) for line in lines] == [
        (name, signal.SIGKILL, {"a": 1}) for name in ("first", "second", "third")
    ]


def test_an_unmutated_kernel_that_ends_its_process_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="bundled ended with exit code -11"):
        list(run_tasks([CleanTask("bundled", "dies", ())], workers=1, limit=600, folder=tmp_path, rules=(), act=act))


SETTINGS = {"cases": 2, "seed": 0}


def filled(path):
    record = Record.open(path, SETTINGS)
    answers = dict.fromkeys(RULES, False)
    record.add(
        {
            "clean": "bundled",
            "inputs": "ours",
            "answers": {"x": answers | {"flex": True}, "y": answers | {"flash-2": None}},
        }
    )
    record.add({"mutant": "m", "inputs": "ours", "cases": 2, "first": {"bounds": 2, "flashverify": 1}, "crashes": 0})
    record.add({"mutant": "m", "inputs": "randn", "cases": 0, "first": {}, "crashes": 0})
    return record


def test_a_record_is_continued_where_it_was_cut(tmp_path):
    path = tmp_path / "record.jsonl"
    filled(path)
    with path.open("a") as file:
        file.write('{"mutant": "m", "inp')

    again = Record.open(path, SETTINGS)
    again.add({"mutant": "n", "inputs": "ours", "cases": 2, "first": {}, "crashes": 1})

    last = Record.open(path, SETTINGS)
    assert {"m", "n"} == set(last.mutants)
    assert last.clean == filled(tmp_path / "other.jsonl").clean


def test_a_record_of_other_settings_is_refused(tmp_path):
    filled(tmp_path / "record.jsonl")
    with pytest.raises(UsageError, match="name another file"):
        Record.open(tmp_path / "record.jsonl", {"cases": 3, "seed": 0})


def test_the_tables_count(tmp_path):
    matrix = Matrix(filled(tmp_path / "record.jsonl"), [(MUTANT, "masks")], ("randn", "ours"), 2)

    assert (matrix.kills("bounds", "ours"), matrix.kills("flex", "ours"), matrix.kills("bounds", "randn")) == (1, 0, 0)
    assert (
        matrix.first("m", "bounds", "ours"),
        matrix.first("m", "flex", "ours"),
        matrix.first("m", "flex", "randn"),
    ) == (2, None, 0)
    assert (matrix.reached("ours"), matrix.reached("randn")) == (1, 0)
    assert (matrix.alarms("flex", "ours"), matrix.alarms("flash-2", "ours")) == ((1, 2), (0, 1))
    assert "| flashverify, all checks |  |  | 1 of 1 | 0 of 2 | 1 of 1 |" in compact(matrix)
    assert "| `m` | masks | · / – |" in full(matrix)


def test_outputs_about_which_the_contract_says_nothing_are_not_compared():
    case = Case(seq_q=8, seq_k=8, mask=Mask(packed=Packed((0, 3, 5), (0, 3, 5))))

    assert not any(reject(load_subject("bundled"), case, ("allclose+lse", "flash-3", "gpuemu")).values())


@pytest.mark.slow
def test_a_kernel_that_does_not_end_is_seen_by_anyone(monkeypatch):
    def endless(forward):
        while True:
            pass

    load_subject("bundled").forward(materialize(CASE, "cpu")[0])  # recorded once: the limit is for the loop
    monkeypatch.setattr(judging, "_LIMIT", 2.0)

    assert reject(Changed(endless), CASE, ("flex",)) == {"flex": True, CRASH: True}


def test_what_is_done_is_left_out_and_a_false_alarm_cannot_find_a_mutant(tmp_path):
    record = filled(tmp_path / "record.jsonl")
    lists = {"m": {"ours": ("x",), "randn": ()}, "n": {"ours": ("x", "y", "z")}}
    mutants = [(MUTANT, "masks"), (dataclasses.replace(MUTANT, name="n"), "masks")]

    (clean,) = kill_matrix._clean_tasks(mutants, lists, record)
    assert clean == CleanTask("bundled", "ours", ("z",))

    record.add({"clean": "bundled", "inputs": "ours", "answers": {"z": dict.fromkeys(RULES, True)}})
    (task,) = kill_matrix._mutant_tasks(mutants, lists, record, RULES)
    usable = [set(rules) for _, rules in task.lists["ours"]]
    assert usable == [set(RULES) - {"flex"}, set(RULES) - {"flash-2"}, set()]


def test_every_mutant_of_the_bank_has_a_theme_and_generated_ones_that_of_their_file():
    chosen = kill_matrix._mutants(argparse.Namespace(generated=0, only=None, seed=0))
    drawn = kill_matrix._mutants(argparse.Namespace(generated=7, only=None, seed=0))

    assert {"masks", "softmax", "decode"} <= {theme for _, theme in chosen}
    assert "other" not in {theme for _, theme in chosen}
    assert not any(mutant.gpu or mutant.control for mutant, _ in chosen)
    assert 0 < len(drawn) <= 7
    with pytest.raises(UsageError, match="only='none'"):
        kill_matrix._mutants(argparse.Namespace(generated=0, only=["none"], seed=0))
