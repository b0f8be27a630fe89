"""What the merge of partial results refuses, in words that name the argument."""

import pytest
import torch

from flashverify_kernels.merge import merge

BAD = [
    ({"o": None}, TypeError, "o: expected a tensor, got NoneType"),
    ({"o": torch.zeros(2, 1, 1, 8)}, ValueError, r"o: expected 5 axes \[P, B, H, S, Dv\], got shape \(2, 1, 1, 8\)"),
    (
        {"o": torch.zeros(2, 1, 1, 3, 12)},
        ValueError,
        "o: the head dimension must be a multiple of 8 from 8 to 256, got 12",
    ),
    ({"o": torch.zeros(2, 1, 1, 3, 8, dtype=torch.float64)}, TypeError, "o: torch.float64 is not one of"),
    ({"lse": 1.0}, TypeError, "lse: expected a tensor, got float"),
    ({"lse": torch.zeros(2, 1, 1, 3).double()}, TypeError, "lse: expected torch.float32, got torch.float64"),
    ({"lse": torch.zeros(2, 1, 3)}, ValueError, r"lse: expected shape \(2, 1, 1, 3\).*got \(2, 1, 3\)"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_input_is_named(change, error, message):
    arguments = {"o": torch.zeros(2, 1, 1, 3, 8), "lse": torch.zeros(2, 1, 1, 3)}
    arguments |= {name: x.to(arguments["o"].device) if isinstance(x, torch.Tensor) else x for name, x in change.items()}
    with pytest.raises(error, match=message):
        merge(**arguments)
