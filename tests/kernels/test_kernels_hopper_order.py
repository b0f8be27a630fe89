"""Which tiles of queries the programs of the forward for Hopper GPUs compute."""

import collections
import itertools

import pytest

from tests.kernels.gluon_on_cpu import begin, on_cpu
from tests.kernels.gluon_values import Whole

pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper")

from flashverify_kernels import hopper_programs
from flashverify_kernels.device.hopper import order
from flashverify_kernels.device.mask import LOWER, SPARSE, UPPER


def computed(programs, heads, tiles, paired):
    """The tiles of each program, as pairs of head and tile."""
    share, tile = on_cpu(order.share_of), on_cpu(order.tile_of)
    sizes = Whole(heads), Whole(tiles)
    found = []
    for number in range(programs):
        begin(number, programs)
        count, in_pairs = share(*sizes, paired)
        found.append([tile(Whole(n), in_pairs, *sizes, paired) for n in range(count)])
    return found


@pytest.mark.parametrize("paired", [False, True])
def test_every_tile_is_computed_once(paired):
    for programs, heads, tiles in itertools.product((1, 2, 7, 132), (1, 3, 16), (1, 2, 5, 8)):
        found = collections.Counter(itertools.chain(*computed(programs, heads, tiles, paired)))

        assert found == dict.fromkeys(itertools.product(range(heads), range(tiles)), 1)


@pytest.mark.parametrize("tiles", [2, 8, 9])
def test_under_a_causal_mask_programs_walk_as_many_keys_up_to_a_pair(tiles):
    walked = [sum(tile + 1 for _, tile in share) for share in computed(132, 256, tiles, True)]

    assert max(walked) - min(walked) <= tiles + 1


def test_a_program_begins_with_the_last_queries():
    assert [share[0][1] for share in computed(4, 1, 4, False)] == [3, 2, 1, 0]
    assert [share[0][1] for share in computed(2, 1, 4, True)] == [3, 2]


def test_pairs_are_taken_where_their_rounds_fill_the_room():
    causal, dense = UPPER.value, 0

    assert hopper_programs.shares(256, 8, causal, 132) == (True, 132)  # 7.8 rounds
    assert hopper_programs.shares(256, 8, SPARSE.value, 132) == (True, 132)
    assert hopper_programs.shares(3, 64, causal, 132) == (False, 192)  # 0.7 rounds
    assert (
        hopper_programs.shares(256, 8, dense, 132)
        == hopper_programs.shares(256, 8, causal | LOWER.value, 132)
        == (False, 132)
    )
    assert hopper_programs.shares(2, 8, dense, 132) == (False, 16)
