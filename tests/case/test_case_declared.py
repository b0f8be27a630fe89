"""Declarations of sizes, masks, scales, storage and launches: what is drawn, listed and refused."""

import dataclasses
import math

import pytest

from flashverify.campaign.worker import search
from flashverify.case import parse_case
from flashverify.case.space.matrix import standard_matrix
from flashverify.case.space.strategies import CPU, GPU, cases
from flashverify.case.supports import Supports

MASKS = ("causal", "window", "key_lengths", "query_lengths", "packed", "tree", "prefix_lengths")
DECLARED = {
    "multiples": Supports(masks=MASKS, seq_multiple=128),
    "square": Supports(masks=MASKS, square=True, empty=True),
    "square multiples": Supports(masks=("causal", "packed"), seq_multiple=64, square=True),
    "listed lengths": Supports(masks=("causal", "tree", "packed"), seq_q=[1, 4], seq_k=(64, 256, 1024)),
    "listed and empty": Supports(masks=("packed", "key_lengths"), seq_q=(8, 16), seq_k=range(8, 100, 8), empty=True),
    "one length": Supports(masks=("causal",), rectangular_causal=False, seq_q=(48, 50), seq_k=(50, 52)),
    "ranges": Supports(masks=("packed",), seq_q=range(1, 5), seq_k=range(1, 4097)),
    "heads": Supports(heads_q=(8, 32), group_sizes=(1, 4)),
    "heads at will": Supports(heads_q=range(5, 200), group_sizes=range(3, 17)),
    "one kv head": Supports(group_sizes=(16,)),
    "scales": Supports(scales=("default", 0.125)),
    "contiguous": Supports(contiguous=True, layouts=("bshd", "bhsd"), dlse=True, strided=True, logits=("sink",)),
    "left windows": Supports(masks=("causal", "window", "packed"), window_sides=("left",)),
    "windows at the end": Supports(masks=("causal", "window"), window_alignments=("bottom-right",)),
    "windows at both": Supports(masks=("causal", "window"), window_alignments=("top-left", "bottom-right")),
    "always packed": Supports(masks=MASKS, required_masks=("packed",), max_seq_q=4),
    "always causal": Supports(masks=MASKS, required_masks=("causal",), rectangular_causal=False),
    "always prefix": Supports(masks=MASKS, required_masks=("prefix_lengths", "causal")),
    "one part, always": Supports(masks=("packed", "causal"), required_masks=("packed",), combine_masks=False),
    "always paged": Supports(masks=("key_lengths",), page_sizes=(16, 5), always_paged=True, backward=False),
    "configurations": Supports(launch_configs=({"block_m": 16, "block_n": 64}, {"block_m": 64, "block_n": 16})),
    "launch of multiples": Supports(seq_multiple=16, square=True, launch=(("block_m", (16, 32)), ("stages", (1, 3)))),
    "rare launches": Supports(launch_configs=({"a": 1}, {"a": 2}), even_launches=False),
}


def draw(supports, count=60, profile=CPU, seed=0):
    return list(search.draw(cases(supports, profile=profile), count, seed))


def sequences(case):
    return ((case.seq_q, case.seq_k),) if case.mask.packed is None else case.mask.packed.lengths()


@pytest.mark.parametrize("name", DECLARED)
@pytest.mark.parametrize("profile", [CPU, GPU], ids=["cpu", "gpu"])
def test_every_draw_is_inside_the_declaration(name, profile):
    supports = DECLARED[name]

    drawn = draw(supports, 40, profile)  # the strategy itself asserts it of each

    assert len(drawn) == 40
    assert all(supports.refusal(case) is None for case in drawn)
