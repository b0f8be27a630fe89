"""A name accounts for what its own defect in the bundled kernels does to another walk, beside another part or elsewhere, and for nothing else."""

import itertools

import pytest

from flashverify.campaign.toolkit import bundled
from flashverify.case.text import parse_case
from flashverify.judge.record import Diagnosis
from flashverify.mutants import build_mutant
from flashverify.mutants.bank import CURATED

pytestmark = pytest.mark.slow

MUTANTS = {mutant.name: mutant for mutant in CURATED}
SEEN = {
    "tree_node_sees_its_sibling": (
        "tree-previous-node",
        "nonfinite dk",
        "seq_q=6 seq_k=10 dtype=fp32 tree=-1,-1,-1,-1,-1,-1 bitmap=128,171 regime=overflow gap=1 dlse=yes",
    ),
    "begin_of_the_walk_rounded_up": (
        "walk-begin-rounded-up",
        "accuracy dv",
        "seq_q=2 seq_k=65 dtype=bf16 tree=-1,0 regime=zeros",
    ),
    "leading_tile_taken_for_full": (
        "edge-tile-unmasked",
        "accuracy dk",
        "seq_q=4 seq_k=5 tree=-1,0,0,0 bias=shared seed=78 gap=8 dlse=yes",
    ),
    "last_partial_block_missing": (
        "blocks-partial-missing",
        "accuracy dk",
        "seq_k=16 dtype=bf16 blocks=128,16,256,0 regime=integers",
    ),
    "first_tile_of_every_block": (
        "blocks-first-tile-only",
        "accuracy o",
        "seq_k=65 dtype=fp32 blocks=16,128,256,0 regime=integers backward=no",
    ),
    "relative_distance_with_the_other_sign": (
        "relative-bias-distance-sign",
        "accuracy drelative_bias",
        "seq_k=2 dtype=bf16 causal=bottom-right relative_bias=2,2 regime=integers",
    ),
    "masked_row_averages": (
        "empty-rows-average",
        "accuracy lse",
        "dtype=bf16 scale=-0.125 regime=large seed=1 backward=no",
    ),
    "tail_of_v_unmasked": (
        "padding-of-v-multiplied",
        "nonfinite delta",
        "seq_k=2 dtype=fp32 packed=0,1/0,1 regime=zeros padding=nan",
    ),
    "scale_of_the_first_kv_head": (
        "codes-scale-of-other-head",
        "accuracy o",
        "heads_q=2 heads_kv=2 quantised=int8/head/fitted/zeros backward=no",
    ),
    "zero_point_wraps": (
        "codes-zero-wraps",
        "accuracy o",
        "heads_q=2 heads_kv=2 quantised=int8/head/fitted/zeros backward=no seq_k=9",
    ),
}


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """By defect the subject, a case and its failure."""
    with bundled.open("cpu", plain=False, numerics="ieee"):
        found = {}
        for name, (_, failure, text) in SEEN.items():
            subject = bundled.load(build_mutant(MUTANTS[name], tmp_path_factory.mktemp(name)))
            case = parse_case(f"fv1 dim_qk=8 dim_v=8 {text}")
            check, output = failure.split()
            result = bundled.judge(subject, case, f"only:{check}")
            found[name] = subject, case, next(v for v in result.failures if v.output == output)
        yield found


@pytest.mark.parametrize("name", SEEN)
def test_a_name_accounts_for_its_own_defect(failures, name):
    assert bundled.attributed(*failures[name], Diagnosis(SEEN[name][0], "It is wrong."))


@pytest.mark.parametrize(("name", "other"), list(itertools.permutations(SEEN, 2)))
def test_and_for_no_other_one(failures, name, other):
    assert not bundled.attributed(*failures[other], Diagnosis(SEEN[name][0], "It is wrong."))
