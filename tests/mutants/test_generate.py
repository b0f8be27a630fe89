"""Generated mutants: each operator gives the edits it says and no others, and the bank is what its users rely on."""

import ast
import re
from pathlib import Path

import pytest

import flashverify_kernels
from flashverify.mutants.build import build_mutant
from flashverify.mutants.operators.equivalents import EQUIVALENT
from flashverify.mutants.operators.generate import OPERATORS, generated, mutants_of
from flashverify.mutants.operators.scope import SCOPE, Scope
from flashverify.mutants.operators.walk import Source, changes

KERNELS = Path(flashverify_kernels.__file__).parent
SAMPLE = 10


def edits(line, operator):
    """What `operator` makes of one statement, whose names all have a value before it."""
    names = sorted({n.id for n in ast.walk(ast.parse(line)) if isinstance(n, ast.Name)} - {"tl", "range", "float"})
    text = f"def f({', '.join(names)}):\n    {line}\n"
    found = [c.edit for c in changes(Source(text), OPERATORS) if c.edit.operator == operator]
    return [(text[: e.start] + e.text + text[e.end :]).split("\n", 1)[1].strip() for e in found]


@pytest.mark.parametrize(
    ("line", "operator", "expected"),
    [
        ("keep = i < n", "compare", ["keep = i <= n"]),
        ("keep = (i) >= (n)", "compare", ["keep = (i) > (n)"]),
        ("empty = l == 0.0", "compare", ["empty = l != 0.0"]),
        ("keep = i < n", "bound", ["keep = i < n - 1"]),
        ("keep = i >= n", "bound", ["keep = i >= n - 1"]),
        ("x = load_tile(p, k_end)", "limit", ["x = load_tile(p, k_end + 1)", "x = load_tile(p, k_end - 1)"]),
        ("x = (a + b) * c", "arithmetic", ["x = ((a + b) + c)", "x = (a - b) * c"]),
        ("x = a // b", "arithmetic", ["x = a * b"]),
        ("acc = acc * alpha[:, None]", "factor", ["acc = acc", "acc = alpha[:, None]"]),
        ("x = p + i", "term", ["x = p", "x = i"]),
        ("x = a - b", "term", ["x = a"]),
        ('m = float("-inf")', "constant", ["m = -1.0e4", "m = 0.0"]),
        ("z = s * LOG2_E", "constant", ["z = s * 1.0"]),
        ("x = tl.maximum(a, 0)", "constant", ["x = tl.maximum(a, 1)"]),
        ("x = tl.max(z, 1)", "call", ["x = tl.min(z, 1)"]),
        ("x = tl.cdiv(n, B)", "call", ["x = ((n) // (B))"]),
        ("x = -(-n // B)", "call", ["x = (n // B)"]),
        ("x = -a", "sign", ["x = a"]),
        ("x = tl.sum(p, 1)", "axis", ["x = tl.sum(p, 0)"]),
        ("x = i[:, None]", "axis", ["x = i[None, :]"]),
        ("x = tl.load(p, mask=m)", "mask", ["x = tl.load(p)"]),
        ("x = tl.load(p, mask=m, other=0.0)", "mask", ["x = tl.load(p)"]),
        ("x = tl.load(p, mask=m, other=0.0)", "fill", ["x = tl.load(p, mask=m)", "x = tl.load(p, mask=m, other=1.0)"]),
        ("see = a & (b)", "conjunct", ["see = a", "see = (b)"]),
        ("see = a & b", "boolean", ["see = a | b"]),
        ("x = 1 if LOWER & MASK else 2", "flag", ["x = 1 if UPPER & MASK else 2"]),
        ("x = p.to(v.dtype)", "cast", ["x = p"]),
        ("x = b.to(tl.int64) * n", "width", ["x = b.to(tl.int32) * n"]),
        ("x = b.to(tl.int64) * stride_b + h.to(tl.int64) * x.head", "width", []),
        ("x = f(q, sizes.sq)", "limit", ["x = f(q, sizes.sq + 1)", "x = f(q, sizes.sq - 1)"]),
        ("x = f(q, x.batch, x.head)", "swap", ["x = f(q, x.head, x.batch)"]),
        ("x = Words(bits=a, batch=b, head=h)", "swap", ["x = Words(bits=a, batch=h, head=b)"]),
        ("tl.store(p, x.to(p.dtype.element_ty))", "cast", []),
        ("x = tl.full(n, 0.0, tl.float32)", "dtype", ["x = tl.full(n, 0.0, tl.float16)"]),
        ("x = f(q, stride_b, stride_h)", "swap", ["x = f(q, stride_h, stride_b)"]),
        ("x = f(q, stride_b, BLOCK_M)", "swap", []),
        ("return a, b", "swap", ["return b, a"]),
        ("x = f(k_end, sk)", "confuse", ["x = f(sk, sk)", "x = f(k_end, k_end)"]),
        ("x = tl.where(c, a, b)", "where", ["x = tl.where(c, b, a)", "x = (a)", "x = (b)"]),
        ("x = a if c else b", "choice", ["x = (a)", "x = (b)"]),
        ("x = a if p is None else b", "choice", []),
        ("x += a", "delete", ["pass"]),
        ("x += a", "accumulate", ["x = a", "x -= a"]),
        ("dq = tl.dot(ds, k, dq, input_precision=P)", "accumulate", ["dq = tl.dot(ds, k, input_precision=P)"]),
        ("tl.store(p, x)", "delete", ["pass"]),
        ("x = tl.trans(k)", "layout", ["x = k"]),
        ("x = f(part != FULL)", "constexpr", ["x = f(True)", "x = f(False)"]),
    ],
)
def test_an_operator_gives_these_edits_of_a_statement(line, operator, expected):
    assert edits(line, operator) == expected


def test_a_loop_loses_and_gains_steps():
    text = "def f(a, b, s):\n    for n in range(a, b, s):\n        g(n)\n"

    found = [c.edit.text for c in changes(Source(text), OPERATORS) if c.edit.operator == "loop"]

    assert found == ["(b) - s", "(b) + s", "(a) + s", "2 * s"]


def test_a_condition_is_forced():
    text = "def f(MASKED, z):\n    if MASKED:\n        g(z)\n    if z is not None:\n        g(1)\n"

    found = [c.edit.text for c in changes(Source(text), OPERATORS) if c.edit.operator == "condition"]

    assert found == ["True", "False", "False"]


INERT = '''
"""A docstring: 1 < 2."""
import math


def f(x: int = 1 + 1) -> "int < 2":
    """Another one, a < b."""
    assert x < 3
    if x < 0:
        raise ValueError(f"x: expected 0 or more, got {x + 1}")
    x = tl.multiple_of(x, 8 * 2)
    if ALIGNED:
        g(x, num_warps=4 + 4)
    for y in (x, 1):
        if y < 2:
            raise TypeError(y + 1)
    if x is not None:
        _check_tensor(x + 1)
    h(x, aligned=g(x + 1))
    return {"num_stages": 2 * 2}
'''


def test_what_changes_no_value_is_left_alone():
    assert list(changes(Source(INERT), OPERATORS)) == []


def test_text_outside_of_ascii_does_not_move_an_edit():
    text = "def f(i, n):\n    return g('∑√', i < n)  # ≤\n"

    (first, *_) = changes(Source(text), OPERATORS)

    assert text[: first.edit.start] + first.edit.text + text[first.edit.end :] == text.replace(" < ", " <= ")


def test_names_do_not_depend_on_other_functions():
    scope = Scope("device/softmax.py")
    text = (KERNELS / scope.file).read_text(encoding="utf-8")
    grown = text.replace(
        "@triton.jit\ndef online_step",
        "@triton.jit\ndef other(a, b):\n    return a < b + 1\n\n\n@triton.jit\ndef online_step",
    )
    assert grown != text

    for everything in (False, True):
        before = {m.name: m.modelled_on for m in mutants_of(text, scope, everything=everything)}
        after = {m.name: m.modelled_on for m in mutants_of(grown, scope, everything=everything)}

        assert before == {name: words for name, words in after.items() if "_other_" not in name}
        assert len(after) > len(before)


def test_functions_that_nothing_runs_are_not_mutated():
    scope = next(scope for scope in SCOPE if scope.file == "device/merge.py")

    names = [m.name for m in mutants_of((KERNELS / scope.file).read_text(encoding="utf-8"), scope, everything=True)]

    assert any("merge_kernel" in name for name in names)
    assert not any("backward" in name for name in names)


@pytest.mark.slow
def test_the_bank_is_large_deterministic_and_a_part_of_everything():
    bank, everything = generated(), generated(everything=True)

    assert len(bank) >= 400
    assert {m.name for m in bank} <= {m.name for m in everything}
    assert len({m.name for m in everything}) == len(everything)
    assert generated.__wrapped__() == bank
    assert all(re.fullmatch("[a-z0-9_]+", m.name) and m.modelled_on and not m.outputs for m in everything)
    assert {m.file for m in bank} == {scope.file for scope in SCOPE}


def test_every_change_applies_in_one_place_and_changes_the_program():
    texts = {scope.file: (KERNELS / scope.file).read_text(encoding="utf-8") for scope in SCOPE}

    for mutant in generated(everything=True):
        assert texts[mutant.file].count(mutant.before) == 1, mutant.name
        assert "".join(mutant.before.split()) != "".join(mutant.after.split()), mutant.name


@pytest.mark.parametrize("mutant", generated()[:: len(generated()) // SAMPLE], ids=lambda m: m.name)
def test_a_mutant_is_built_and_parses_as_another_program(mutant, tmp_path):
    build_mutant(mutant, tmp_path)

    changed = ast.parse((tmp_path / f"mutant_{mutant.name}" / mutant.file).read_text(encoding="utf-8"))
    original = ast.parse(
        (KERNELS / mutant.file).read_text(encoding="utf-8").replace("flashverify_kernels", f"mutant_{mutant.name}")
    )
    assert ast.dump(changed) != ast.dump(original)


def test_a_site_survives_changes_elsewhere_in_its_function():
    text = "def f(a, b):\n    x = a < b\n    y = a < b\n    x = a < b\n"
    grown = text.replace("    x", "    z = g(a < 1, b <= 2)\n    x", 1).replace("y = a < b", "y = a < b  # [n]")
    scope = Scope("device/x.py")
    before, after = ({m.site: m.name for m in mutants_of(t, scope, everything=True)} for t in (text, grown))

    assert {"x.f: x = a {< -> <=} b", "x.f: x = a {< -> <=} b [2]"} <= set(before)
    assert set(before) < set(after)
    assert before != {site: after[site] for site in before}


def test_reasons_are_given_of_mutants_that_exist():
    sites = [m.site for m in generated(everything=True)]

    assert set(EQUIVALENT) <= set(sites)
    assert len(set(sites)) == len(sites)
    assert all(reason.endswith(".") for reason in EQUIVALENT.values())
