"""What a generated mutant needs of a case, and behind which adapter it shows."""

import pytest

from flashverify.mutants.operators.generate import mutants_of
from flashverify.mutants.operators.scope import Scope, needs_of
from flashverify.mutants.operators.walk import Change, Edit


@pytest.mark.parametrize(
    ("scope", "change", "expected"),
    [
        (Scope("device/dq.py", needs=("backward",)), ("dq_kernel", "SPARSE & MASK"), ("backward", "blocks")),
        (Scope("device/logits.py"), ("tanh_slope",), ("softcap", "backward")),
        (Scope("device/forward.py"), ("forward_kernel", "part == FULL"), ()),
    ],
)
def test_a_mutant_needs_what_reaches_its_code(scope, change, expected):
    function, *within = change

    assert needs_of(scope, Change(Edit(0, 0, "", "compare", ""), function, tuple(within))) == expected


def test_a_change_of_merge_stands_behind_the_adapter_that_shows_it():
    scope = Scope("device/merge.py", "bundled-chunked")
    text = "def statistics(x, y, parts, base2):\n    x += y\n    return (x * y) if base2 else x < y\n"

    subjects = {m.name.split("_")[-2]: m.subject for m in mutants_of(text, scope, everything=True)}

    assert subjects["compare"] == "bundled-chunked"
    assert subjects["accumulate"] == subjects["factor"] == "bundled-decode"
    choices = mutants_of("def launch_merge(base2):\n    return 1 if base2 else 2\n", scope, everything=True)
    assert [m.subject for m in choices] == ["bundled-chunked", "bundled-decode"]


@pytest.mark.parametrize(
    ("statement", "operator", "expected"),
    [
        ("x = a if cap_ratio is None else a * b", "factor", ("softcap",)),
        ("x = a < b if LOWER & MASK else 0", "compare", ("window",)),
        ("x = f(q_end)", "confuse", ("query_lengths",)),
        ("x = f(k_end)", "confuse", ()),
        ("if terms.sink is not None: x = 1", "condition", ("sink",)),
        ("if MASKED: x = 1", "condition", ()),
    ],
)
def test_a_mutant_needs_what_tells_it_from_what_it_was(statement, operator, expected):
    text = f"def f(q_end, sq, k_end, sk, a, b):\n    {statement}\n"

    needs = {m.needs for m in mutants_of(text, Scope("device/x.py"), everything=True) if f"_{operator}_" in m.name}

    assert needs == {expected}
