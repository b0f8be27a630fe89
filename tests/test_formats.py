"""The table of formats against torch and numpy; the tables are importable without torch."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import torch

from flashverify.formats import DTYPES, FORMATS, format_of


@pytest.mark.parametrize("entry", FORMATS.values(), ids=FORMATS)
def test_bits_are_those_of_torch(entry):
    word = {2: torch.int16, 4: torch.int32, 8: torch.int64}[entry.bits // 8]

    def value(pattern):
        return torch.tensor(pattern - (1 << entry.bits) * (pattern >> (entry.bits - 1)), dtype=word).view(entry.dtype)

    assert value(entry.poisons["nan"]).isnan()
    assert value(entry.poisons["inf"]).item() == float("inf")
    assert value(entry.poisons["-inf"]).item() == float("-inf")
    assert value(entry.poisons["max"]).item() == torch.finfo(entry.dtype).max == entry.max
    assert np.dtype(entry.word).itemsize == torch.finfo(entry.dtype).bits // 8
    for pattern in entry.unwritten:
        assert value(pattern).isnan()


def test_no_mark_of_unwritten_memory_is_the_upper_half_of_another():
    marks = [(pattern, entry.bits) for entry in FORMATS.values() for pattern in entry.unwritten]
    for pattern, bits in marks:
        for other, narrower in marks:
            if narrower < bits:
                assert pattern >> (bits - narrower) != other


@pytest.mark.parametrize("name", DTYPES)
def test_a_format_is_found_by_every_name_of_its(name):
    entry = FORMATS[name]
    numpy = np.dtype(ml_dtypes.bfloat16) if name == "bf16" else np.dtype(entry.library)
    assert format_of(name) is format_of(entry.library) is format_of(entry.dtype) is format_of(numpy) is entry


def test_an_unknown_format_is_named():
    with pytest.raises(ValueError, match=r"dtype=torch.int32 is not a known format; accepted: fp16, bf16, fp32, fp64"):
        format_of(torch.int32)


@pytest.mark.parametrize("module", ["child_process", "formats", "outputs"])
def test_leaves_are_imported_without_torch(module):
    code = (
        f"import sys, flashverify.{module}; assert not {{'torch', 'numpy'}} & sys.modules.keys(), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
