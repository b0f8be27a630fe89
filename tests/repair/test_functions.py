"""What ran: which functions of the subject's own, which of their lines, of what kind names were, and under which kernel."""

import json
import runpy
import textwrap
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import triton

from flashverify.interpreter import Sanitizer, faithful
from flashverify.interpreter.hooks import interpreting
from flashverify.interpreter.modes import kernels_so_far, line_by_line
from flashverify.repair.functions import executed
from flashverify.repair.kinds import floats_of, kinds_of, likeness, shape_of
from tests.repair import plain, ran_kernels
from tests.repair.written import KINDS, function, ran_of


@pytest.fixture(scope="module")
def seen():
    if not interpreting():
        pytest.skip("kernels are compiled in this process")
    with faithful(Sanitizer):
        ran_kernels.run()
        with line_by_line():
            found = executed(ran_kernels.run, kernels_so_far)
    return {each.name: each for each in found}


def lines(ran):
    """The text of the lines that ran."""
    text = ran.source.text.split("\n")
    return [text[number - 1].strip() for number in sorted(ran.lines)]


def test_the_functions_of_the_subject_ran_and_no_others(seen):
    assert list(seen) == ["run", "launched", "checked", "folder", "first", "helper", "second"]
    assert {each.file.name for each in seen.values()} == {"ran_kernels.py"}


def test_kernels_are_told_from_plain_python(seen):
    assert {name for name, each in seen.items() if each.kernel is not None} == {"first", "helper", "second"}
    assert seen["helper"].kernel is ran_kernels.helper.fn
    assert seen["launched"].functions == [ran_kernels.launched]


def test_the_lines_that_ran_are_those_of_the_file(seen):
    assert "if rows > 100:" in lines(seen["first"])
    assert "values = values + 1.0" not in lines(seen["first"])
    assert lines(seen["helper"]) == ["moved = x * factor / FACTOR", "return moved + 0.0"]
    assert lines(seen["checked"]) == ["if x.ndim > LIMIT:"]


def test_a_function_ran_under_the_kernels_that_called_it(seen):
    assert seen["helper"].under == {"first", "second"}
    assert seen["first"].under == {"first"}
    assert seen["launched"].under == {"run"}


def test_names_have_the_kinds_of_their_values(seen):
    kinds = seen["first"].kinds

    assert kinds["at"] == "int[16]"
    assert kinds["inside"] == "bool[16]"
    assert kinds["values"] == "float[16]"
    assert kinds["wide"] == "float[16, 16]"
    assert kinds["rows"] == kinds["N"] == "int"
    assert kinds["x"] == "pointer"
    assert seen["helper"].kinds["FACTOR"] == "int"
    assert seen["helper"].kinds["HALF"] == "float"
    assert (seen["helper"].returned, seen["first"].returned) == ("float[16]", "")
    assert seen["launched"].kinds == {
        **dict.fromkeys(("x", "out", "middle"), "float[16]"),
        "dtype": "dtype",
        "causal": "bool",
        "N": "int",
        "sizes.rows": "int",
        "sizes.scale": "float",
        "HALF": "float",
    }


def test_kinds_of_calls_are_joined():
    def called(value):
        """A float where the value is large."""
        if value > 1:
            more = value * 0.5
            return more + 1
        less = value
        return less + 1

    (ran,) = (each for each in executed(lambda: (called(1), called(3)), dict) if each.name == "called")

    assert ran.kinds == {"value": "int", "more": "float", "less": "int"}
    assert ran.returned == "float"


def test_nothing_of_torch_numpy_and_python_ran():
    def outside():
        textwrap.dedent(json.dumps({"a": 1}, indent=1))
        np.linalg.norm(np.ones(3))
        torch.nn.functional.softmax(torch.ones(3), 0)
        ran_of("def f():\n    return 1\n")

    found = executed(outside, dict)

    assert {each.name for each in found} == {"outside", "ran_of"}


def test_a_function_without_a_file_is_left_out():
    scope = {}
    exec("def made():\n    return 1\n", scope)

    assert [each.name for each in executed(lambda: scope["made"](), dict)] == []


def test_a_closure_is_one_function_with_all_its_holders():
    def run():
        return plain.closed(1) + plain.other(1)

    inner = next(each for each in executed(run, dict) if each.name == "inner")

    assert {id(each) for each in inner.functions} >= {id(plain.closed), id(plain.other)}
    assert inner.top.name == "outer"
    assert lines(inner) == ["moved = x + by", "return +moved"]


def test_functions_that_ran_first_come_first():
    def run():
        return plain.calling(1)

    assert [each.name for each in executed(run, dict)] == ["run", "calling", "plain"]


def test_a_trace_that_was_set_before_is_set_again():
    import sys

    def trace(_frame, _event, _argument):
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        executed(lambda: plain.plain(1), dict)
        with pytest.raises(ZeroDivisionError):
            executed(lambda: 1 / 0, dict)
        after = sys.gettrace()
    finally:
        sys.settrace(before)

    assert after is trace


# --- names ------------------------------------------------------------------------------------------------------------


def test_names_that_are_read_come_first_then_those_that_are_spelled_alike():
    ran = ran_of(function("x = seq_k + length"))

    assert ran.names_of("int", near="seq_q")[:3] == ["seq_k", "length", "seq_q"]
    assert ran.names_of("float", near="cap")[0] == "cap"
    assert ran.names_of("complex") == []


def test_conditions_are_masks_and_comparisons_of_tensors():
    ran = ran_of(function("x = (key[None, :] < length) & (head < heads)", "y = key[None, :] < length"))

    assert ran.conditions == ("see", "key[None, :] < length")


def test_a_name_has_a_value_from_its_first_assignment_on():
    ran = ran_of("def f(a):\n    b = a\n    c = b\n    b = c\n    return b\n")
    statements = ran.node.body

    assert ran.has_value("a", statements[0])
    assert not ran.has_value("b", statements[0])
    assert ran.has_value("b", statements[2])
    assert not ran.has_value("c", statements[1])


@pytest.mark.parametrize(("kind", "shape"), [("int", None), ("float[16]", (16,)), ("float[16, 32]", (16, 32))])
def test_the_shape_of_a_kind(kind, shape):
    assert shape_of(kind) == shape


def test_likeness_is_of_spelling():
    assert likeness("seq_q", "seq_k") > likeness("seq_q", "total")
    assert likeness("seq_q", "seq_q") == 1.0


def test_values_of_no_kind_are_left_out():
    import sys

    def frame(number=1, text="a", *more):
        return sys._getframe()

    found = kinds_of(frame())

    assert found.keys() & {"number", "text", "more"} == {"number"}
    assert "see" in KINDS


def test_fields_of_a_dataclass_are_names_too():
    import sys

    @dataclass(frozen=True, slots=True)
    class Call:
        rows: int
        scale: float
        name: str = "call"

    def frame(call):
        return sys._getframe()

    found = kinds_of(frame(Call(3, 0.5)))

    assert {name: kind for name, kind in found.items() if name.startswith("call")} == {
        "call.rows": "int",
        "call.scale": "float",
    }


def test_kernels_and_plain_python_are_written_apart(seen):
    assert seen["first"].family is seen["second"].family
    assert seen["launched"].family is seen["run"].family
    assert seen["first"].family is not seen["launched"].family


def test_constants_of_formulas_are_the_floats_of_a_module():
    assert floats_of({"LOG2_E": triton.language.constexpr(1.5), "HALF": 0.5, "WIDTH": 3, "name": "x"}) == {
        "LOG2_E": "float",
        "HALF": "float",
    }


def test_a_function_of_a_copied_file_is_not_edited_with_the_one_that_ran_first(tmp_path):
    copies = []
    for name in ("one", "copy"):
        path = tmp_path / f"{name}.py"
        path.write_text("def half(x):\n    return x // 2\n", encoding="utf-8")
        copies.append(runpy.run_path(str(path))["half"])

    (ran,) = [each for each in executed(lambda: [half(4) for half in copies], dict) if each.name == "half"]

    assert ran.functions == copies[:1]
    assert ran.file.name == "one.py"
