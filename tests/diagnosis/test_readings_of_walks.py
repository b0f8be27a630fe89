"""Tiles that a walk leaves out whose limit is a number of a row, not its position, or is that of another row."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.readings import readings
from flashverify.diagnosis.readings.masks.ends import visible_of
from flashverify.diagnosis.readings.masks.walks import walked
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.planted import Plain, planted

FORWARD = "fv1 seq_q=70 seq_k=157 dim_qk=16 dim_v=16 dtype=fp32 backward=no "
BY_NUMBER = "tiles of 32 keys that begin behind the number of the last row of the row's tile of 32"
OF_ROW_15 = "tiles of 16 keys that begin behind the last key that row 15 of the row's tile of 64 rows sees, row 0 being the first"


def by_the_number(see):
    """The walk ends at the tile of 32 keys with the number of the last row of the tile, without the keys before the rows."""
    i, j = (torch.arange(n) for n in see.shape[2:])
    return see & (j[None, :] // 32 <= i[:, None] // 32)


def by_row_15(see):
    """The walk ends at the tile of 16 keys in which the 16th row of a tile of 64 rows sees its last key."""
    row = torch.arange(see.shape[2]) // 64 * 64 + 15
    last = see.shape[3] - see.shape[2] + row
    return see & (torch.arange(see.shape[3]) // 16 <= last[:, None] // 16)


@pytest.mark.parametrize(
    ("drop", "words"), [(by_the_number, BY_NUMBER), (by_row_15, OF_ROW_15)], ids=["number", "another row"]
)
def test_what_a_walk_leaves_out_by_a_wrong_limit_is_a_set(drop, words):
    scene = look(Plain(), parse_case(FORWARD + "causal=bottom-right"))
    see = visible_of(scene)
    missing = see & ~drop(see)

    said = [each.words for each in walked(scene, "o") if torch.equal(see & each.where(scene), missing)]

    assert bool(missing.any())
    assert said == [words]


def test_tiles_that_are_lost_by_the_number_of_a_row_are_said():
    trials = Trials(planted(drop_keys=lambda _self, see: by_the_number(see)), 300)
    scene = trials.scene(parse_case(FORWARD.replace("seq_q=70 seq_k=157", "seq_q=3 seq_k=40") + "causal=bottom-right"))
    assert scene.failures

    assert readings(trials, scene, "o").sentences[0] == f"O misses every key in {BY_NUMBER}"
