"""What is said of a repair: the lines before and after, without parentheses that nobody needs."""

from pathlib import Path

import pytest

from flashverify.repair.candidates import sites
from flashverify.repair.described import described
from tests.repair.written import dumped, function, ran_of


def said(wrong, right, file=Path("kernel.py")):
    """What is said of the first edit that makes a line the right one."""
    ran = ran_of(function(wrong, "return o"), kernel=True, file=file)
    meant, text = dumped(function(right, "return o")), ran.source.text
    found = (each for site in sites(ran) for each in site.candidates)
    edit = next(x for x in found if dumped(text[: x.edit.start] + x.edit.text + text[x.edit.end :]) == meant)
    return described(edit, 12, 7)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("x = start + left - 1", "x = start + left"),
        ("x = tl.cdiv(length, BLOCK)", "x = length // BLOCK"),
        ("m = (key < length) & (row < seq_q)", "m = key < length"),
        ("m = (key < length) & (row < seq_q)", "m = (key < length) | (row < seq_q)"),
        ("x = causal and windowed and head", "x = causal and head"),
        ("x = start - (stop - left)", "x = start - (stop + left)"),
        ("s = tl.dot(q, k)", "s = tl.dot(q, k) * scale"),
        ("x = top + lse - new", "x = new - (top + lse)"),
        ("x = (s + w).to(tl.float16) * scale", "x = (s + w) * scale"),
        ("x = tl.exp(new - top)", "x = tl.exp(top - new)"),
        ("if causal:\n    x = 1", "if not causal:\n    x = 1"),
        ("for i in range(0, stop, BLOCK):\n    x = i", "for i in range(0, stop + BLOCK, BLOCK):\n    x = i"),
        ("see = key[None, :] < row[:, None]", "see = key[None, :] <= row[:, None]"),
    ],
)
def test_the_lines_are_those_of_the_file_before_and_after(wrong, right):
    found = said(wrong, right)

    assert (found.before, found.after) == (wrong.partition("\n")[0], right.partition("\n")[0])
    assert (found.function, found.line, found.cases, found.failing) == ("function", 2, 12, 7)


def test_a_statement_that_is_left_out_leaves_nothing():
    found = said("x = start\nacc += s", "x = start\npass")

    assert (found.line, found.before, found.after) == (3, "acc += s", "")


def test_a_statement_of_several_lines_that_is_left_out_is_shown_whole():
    found = said("s = f(\n    s,\n    scale,\n)", "pass\n\n\n")

    assert (found.before, found.after) == ("s = f(\n    s,\n    scale,\n)", "")


def test_an_edit_of_several_lines_is_shown_with_all_of_them():
    found = said("x = f(\n    seq_q,\n    seq_k,\n)", "x = f(\n    seq_k,\n    seq_q,\n)")

    assert found.line == 3
    assert (found.before, found.after) == ("seq_q,\nseq_k,", "seq_k,\nseq_q,")


def test_a_file_is_named_from_the_working_directory_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong, right = "acc += s", "acc -= s"

    assert said(wrong, right, tmp_path / "ops" / "kernel.py").file == "ops/kernel.py"
    assert said(wrong, right, Path("/elsewhere/package/ops/kernel.py")).file == "ops/kernel.py"
