"""Where the lines of a stored repair go in a file."""

import pytest

from flashverify.judge.record import Repair
from flashverify.repair.placing import lines_instead

FILE = ("if x:", "    y = 1", "z = y", "")


@pytest.mark.parametrize(
    ("line", "before", "after", "found"),
    [
        (2, "y = 1", "y = 2\nw = y", ("    y = 2", "    w = y")),
        (2, "y = 1", "", ("    pass",)),
        (3, "z = y", "", ()),
        (1, "if x:\n    y = 1", "y = 1", ("y = 1",)),
        (2, "y = 2", "y = 3", None),
        (3, "y = 1", "y = 3", None),
        (2, "y = 1", "y = (", None),
        (9, "y = 1", "y = 2", None),
    ],
)
def test_lines_take_the_margin_of_those_that_they_replace_and_leave_python(line, before, after, found):
    assert lines_instead(Repair("a.py", line, "f", before, after, 20, 12), FILE) == found
