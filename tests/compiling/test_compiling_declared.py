"""A hazard is left out where its source line declares it with a reason, and only there."""

import pytest

from flashverify.compiling.declared import is_declared

LINES = """a = 1
x = i * s  # flashverify: int32-offset is declared, heads are short
x = i * s  # flashverify: int32-offset is declared,
x = i * s  # flashverify: unfilled-load is declared, the lanes are never used
x = i * s  # int32-offset is declared, heads are short
"""


@pytest.mark.parametrize(("line", "expected"), [(1, False), (2, True), (3, False), (4, False), (5, False), (99, False)])
def test_a_line_declares_one_kind_with_a_reason(tmp_path, line, expected):
    file = tmp_path / "kernel.py"
    file.write_text(LINES, encoding="utf-8")
    assert is_declared("int32-offset", f"{file}:{line}") is expected


@pytest.mark.parametrize("where", ["unknown", "no/such/file.py:3", "file.py"])
def test_a_place_that_cannot_be_read_declares_nothing(where):
    assert not is_declared("int32-offset", where)
