"""docs/howto/choosing-a-form.md: every field and value that it offers is one of `Form`, and does what its section says."""

import ast
import re

import pytest

from flashverify import Form
from tests.documents.blocks import ROOT

TEXT = (ROOT / "docs/howto/choosing-a-form.md").read_text(encoding="utf-8")
OFFERED = [(name, ast.literal_eval(value)) for name, value in re.findall(r"`(\w+)=(\"\w+\"|\d+|True)`", TEXT)]


@pytest.mark.parametrize(("name", "value"), OFFERED)
def test_a_field_that_the_page_offers_is_accepted_and_no_default(name, value):
    needed = {"block_n": 64} if name == "key_order" else {}

    assert getattr(Form(**needed, **{name: value}), name) != getattr(Form(), name)


def test_the_page_offers_fields_of_both_sections():
    loose, _, sharp = TEXT.partition("## You want sharper bounds")

    assert {"row_sum", "key_order"} <= {name for name, _ in OFFERED}
    assert "row_sum" in loose
    assert "key_order" in sharp
