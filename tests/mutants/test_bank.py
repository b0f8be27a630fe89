"""The planted defects: each applies, in one place, and says what it needs."""

import ast
import dataclasses
import importlib
import re
from pathlib import Path

import pytest

from flashverify.case.case import Case, Grad
from flashverify.case.masks.mask import Mask, Packed
from flashverify.errors import UsageError
from flashverify.mutants import BANK, Mutant, build_mutant
from flashverify.mutants.bank import CONTROLS, CURATED
from flashverify.mutants.bank.gpu import GPU
from flashverify.mutants.bank.memory import MEMORY_BANK
from flashverify.mutants.build import changed_text, kernel_files, line_of
from flashverify.mutants.mutant import SUBJECTS
from flashverify.subjects import load_subject

EVERY = (*CURATED, *CONTROLS)


def test_names_are_unique_and_every_mutant_has_a_model():
    assert len({mutant.name for mutant in EVERY}) == len(EVERY)
    assert all(mutant.modelled_on and mutant.name.isidentifier() for mutant in EVERY)
    assert all(mutant.outputs for mutant in BANK)


def test_controls_and_what_needs_a_gpu_say_so():
    assert all(mutant.control for mutant in CONTROLS)
    assert not any(mutant.control for mutant in CURATED)
    assert [mutant.name for mutant in GPU] == [mutant.name for mutant in CURATED if mutant.gpu]


@pytest.mark.parametrize("mutant", EVERY, ids=lambda m: m.name)
def test_every_mutant_applies_and_its_first_line_is_known(mutant):
    before, after = kernel_files()[mutant.file], changed_text(mutant)

    assert mutant.after in after
    ast.parse(after)
    line = line_of(mutant)
    before, after = before.splitlines(), after.splitlines()
    assert before[: line - 1] == after[: line - 1]
    assert before[:line] != after[:line]


def test_a_built_mutant_is_the_package_under_another_name_with_one_change(tmp_path):
    mutant = BANK[0]

    spec = build_mutant(mutant, tmp_path)

    assert spec == f"{tmp_path}/mutant_{mutant.name}_subject.py:SUBJECT"
    package = tmp_path / f"mutant_{mutant.name}"
    written = {
        path.relative_to(package).as_posix(): path.read_text(encoding="utf-8").replace(
            package.name, "flashverify_kernels"
        )
        for path in package.rglob("*.py")
    }
    assert written == {**kernel_files(), mutant.file: changed_text(mutant)}


def test_no_other_kernel_stands_in_for_the_one_with_the_defect(tmp_path):
    mutant = next(mutant for mutant in BANK if mutant.file == "device/forward.py")
    own = importlib.import_module("flashverify_kernels.hopper").HOPPER

    load_subject(build_mutant(mutant, tmp_path)).form(Case())

    assert importlib.import_module(f"mutant_{mutant.name}.hopper").HOPPER == ()
    assert own == (9, 0) == importlib.import_module("flashverify_kernels.hopper").HOPPER


def test_a_defect_in_the_kernels_for_hopper_gpus_leaves_them_in(tmp_path):
    mutant = Mutant(
        name="in_gluon",
        file="device/hopper/softmax.py",
        before="m_i - pivot",
        after="pivot - m_i",
        outputs=(),
        modelled_on="none",
    )

    load_subject(build_mutant(mutant, tmp_path)).form(Case())

    assert importlib.import_module("mutant_in_gluon.hopper").HOPPER == (9, 0)


STALE = Mutant(name="stale", file="launch.py", before="no such text", after="", outputs=("o",), modelled_on="nothing")


def test_a_change_that_no_longer_applies_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="occurs 0 times"):
        build_mutant(STALE, tmp_path)


def test_an_unknown_subject_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="subject='other' is not one of bundled"):
        build_mutant(dataclasses.replace(STALE, subject="other"), tmp_path)


def test_the_documentation_names_mutants_that_exist():
    text = (Path(__file__).parents[2] / "docs/mutants.md").read_text(encoding="utf-8")
    table = text[text.index("## Which hazards") : text.index("## Generated")]
    named = set(re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+)+)`", table))

    assert len(named) > 80
    assert named <= {mutant.name for mutant in (*EVERY, *MEMORY_BANK)}


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(UsageError, match=r"occurs 0 times in device/nothing\.py"):
        build_mutant(dataclasses.replace(STALE, file="device/nothing.py"), tmp_path)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_mutant_stands_behind_its_subject(subject, tmp_path):
    mutant = next(mutant for mutant in CURATED if mutant.subject == subject)

    loaded = load_subject(build_mutant(mutant, tmp_path))

    assert mutant.name == loaded.name
    assert type(load_subject(subject)) is type(loaded)


@pytest.mark.parametrize(
    ("needs", "case", "expected"),
    [
        ((), Case(), True),
        (("backward",), Case(), True),
        (("backward",), Case(grad=Grad(backward=False)), False),
        (("causal", "groups"), Case(heads_q=2, mask=Mask(causal="top-left")), True),
        (("causal", "groups"), Case(heads_q=2), False),
        (("sequences",), Case(batch=2), True),
        (("sequences",), Case(), False),
        (("sequences", "packed"), Case(seq_q=2, seq_k=2, mask=Mask(packed=Packed((0, 1, 2), (0, 1, 2)))), True),
        (("launch",), Case(launch=(("block_m", 16),)), True),
        (("launch",), Case(), False),
        (("dropout",), Case(dropout=0.5), True),
        (("dropout", "paged"), Case(dropout=0.5), False),
    ],
)
def test_a_mutant_concerns_cases_that_have_all_it_needs(needs, case, expected):
    assert expected == dataclasses.replace(STALE, needs=needs).concerns(case)
