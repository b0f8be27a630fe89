"""docs/subjects.md says what every field of `Problem` and of `Contract` is."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from flashverify.case.problem import Problem
from flashverify.case.wiring.methods import Wiring
from flashverify.subjects.interface import Contract

TEXT = (Path(__file__).resolve().parents[2] / "docs/subjects.md").read_text()
PROPERTIES = {name for name, _ in inspect.getmembers(Problem, lambda x: isinstance(x, property))}
METHODS = {name for name, x in vars(Wiring).items() if inspect.isfunction(x)}


@pytest.mark.parametrize("name", sorted({f.name for f in dataclasses.fields(Problem)} | PROPERTIES | METHODS))
def test_a_field_of_problem_is_documented(name):
    section = TEXT.partition("## From a function")[2].partition("## From a class")[0]
    assert re.search(rf"`{name}`", section)


def test_the_table_of_the_contract_has_its_fields():
    section = TEXT.partition("### `Contract`")[2].partition("\n### ")[0]
    listed = [
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    ]
    assert sorted(listed) == sorted(f.name for f in dataclasses.fields(Contract))
