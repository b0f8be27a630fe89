"""docs/adapters.md has every adapter, and each is documented as the others are."""

import inspect
import re
from pathlib import Path

import pytest

from flashverify import adapters

TEXT = (Path(__file__).resolve().parents[2] / "docs/adapters.md").read_text()


@pytest.mark.parametrize("name", adapters.__all__)
def test_an_adapter_has_a_row_of_the_table_and_what_all_have_in_common(name):
    rows = [line for line in TEXT.splitlines() if line.startswith("| `")]
    parameters = inspect.signature(getattr(adapters, name)).parameters

    assert any(re.search(rf"`{name}\(", line) for line in rows)
    assert {"name", "device", "form", "contract", "supports"} <= parameters.keys()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(\w+)\(f\)|`(\w+)\(W\)", TEXT))))
def test_the_page_names_no_adapter_that_does_not_exist(name):
    assert "".join(name) in adapters.__all__
