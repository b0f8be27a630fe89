"""Places in words."""

import numpy as np
import pytest
import torch

from flashverify import parse_case
from flashverify.errors import UsageError
from flashverify.subjects import Supports
from flashverify.xray.cases import default_case
from flashverify.xray.declared import Declared, reasons
from flashverify.xray.regions import boxes, places, tiles


def grid(rows, keys, *wrong):
    cells = np.zeros((rows, keys), dtype=bool)
    for r, c in wrong:
        cells[r, c] = True
    return cells


def test_a_band_along_the_diagonal_is_one_place_even_where_the_keys_end():
    band = np.eye(8, dtype=bool) | np.eye(8, k=1, dtype=bool)
    assert places(band) == "row i and keys i to i+1, rows 0..7"
    assert places(np.eye(8, k=-3, dtype=bool)) == "row i and key i-3, rows 3..7"


def test_boxes_are_listed_and_the_rest_counted():
    cells = grid(40, 40, *((slice(r, r + 2), slice(0, 3)) for r in range(0, 25, 5)))
    assert (
        places(cells)
        == "rows 0..1 with keys 0..2; rows 5..6 with keys 0..2; rows 10..11 with keys 0..2; and 2 more places"
    )
    assert places(grid(4, 9, (2, slice(3, 5))), rows=8, keys=4, first_key=0) == "rows 16..23 with keys 12..19"


def test_only_full_boxes_of_one_size_on_their_grid_are_tiles():
    square = grid(64, 64, (slice(16, 32), slice(16, 32)), (slice(48, 64), slice(48, 64)))
    assert tiles(square) == "exactly 2 tiles of 16 x 16 on the diagonal"
    assert tiles(grid(64, 64, (slice(16, 32), slice(0, 32)))) == "exactly 1 tile of 16 x 32"
    assert tiles(grid(64, 64, (slice(17, 33), slice(16, 32)))) == ""
    square[20, 20] = False
    assert tiles(square) == ""
    assert [box.full for box in boxes(square)] == [False, True]


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("fv1 seq_q=9 seq_k=9 causal=top-left", (0, 0, 2, 5), "future keys"),
        ("fv1 seq_q=9 seq_k=9 causal=top-left prefix=5", (0, 0, 2, 5), "future keys"),
        ("fv1 seq_q=9 seq_k=9 causal=top-left prefix=5 window=1,*", (0, 0, 5, 2), "keys outside the window"),
        ("fv1 seq_q=9 seq_k=9 window=1,1", (0, 0, 5, 2), "keys outside the window"),
        ("fv1 seq_q=9 seq_k=9 causal=bottom-right window=1,*", (0, 0, 5, 2), "keys outside the window"),
        ("fv1 seq_q=9 seq_k=9 klen=4", (0, 0, 5, 4), "keys past the declared length"),
        ("fv1 seq_q=9 seq_k=9 qlen=4", (0, 0, 5, 2), "keys in rows past the declared length"),
        ("fv1 seq_q=3 seq_k=3 tree=-1,-1,0", (0, 0, 2, 1), "keys that are no ancestors"),
        ("fv1 seq_q=32 seq_k=32 blocks=16,16,0,1", (0, 0, 20, 20), "keys of dead blocks"),
        ("fv1 seq_q=9 seq_k=9 bitmap=0,1", (0, 0, 5, 2), "keys whose bit is not set"),
    ],
)
def test_the_part_that_masks_a_pair_is_named(text, place, reason):
    case = parse_case(text)
    assert not bool(Declared(case, torch.device("cpu")).full()[place])
    assert reasons(case, torch.tensor([place])) == (reason,)


@pytest.mark.parametrize("chunk", [2**25, 200])
def test_sums_are_those_of_the_mask_whatever_the_bins(chunk, monkeypatch):
    monkeypatch.setattr("flashverify.xray.declared._CHUNK", chunk)
    case = parse_case("fv1 batch=2 heads_q=2 seq_q=13 seq_k=21 causal=bottom-right klen=20,9")
    declared = Declared(case, torch.device("cpu"))
    full = declared.full().double()
    by_row, by_key = torch.rand(2, 2, 13).double(), torch.rand(2, 2, 21).double()
    weighted = full * by_row.unsqueeze(-1) * by_key.unsqueeze(2)

    keys, rows = (
        declared.sums("keys", 4, by_row=by_row, by_key=by_key),
        declared.sums("rows", 4, by_row=by_row, by_key=by_key),
    )

    assert keys.shape == (2, 2, 13, 6)
    assert rows.shape == (2, 2, 4, 21)
    torch.testing.assert_close(keys[..., 2], weighted[..., 8:12].sum(-1))
    torch.testing.assert_close(rows[:, :, 3], weighted[:, :, 12:].sum(2))
    assert torch.equal(declared.per_row, full.sum(-1))


def test_the_default_case_is_inside_what_the_subject_takes():
    decode = Supports(masks=("causal",), causal=("bottom-right",), max_seq_q=4, backward=False, dtypes=("bf16",))
    assert str(default_case(decode, length=100)) == (
        "fv1 seq_q=4 seq_k=100 dim_qk=64 dim_v=64 dtype=bf16 causal=bottom-right backward=no"
    )
    assert default_case(Supports(), length=8).mask.causal is None
    with pytest.raises(UsageError, match="mask='band' is not accepted: one of causal, full"):
        default_case(Supports(), mask="band")
    with pytest.raises(UsageError, match="mask parts"):
        default_case(Supports(), mask="causal")
