import dataclasses

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from flashverify.case.space.compile_keys import list_compile_keys
from flashverify.case.space.profiles import GPU
from flashverify.case.space.strategies import cases
from flashverify.case.supports import Supports

TRITON = Supports(
    precisions=("ieee", "tf32"),
    masks=("causal", "key_lengths", "tree"),
    launch=(("block_m", (16, 64)), ("block_n", (16, 32, 64))),
)
FORMATS = [("fp16", "ieee"), ("bf16", "ieee"), ("fp32", "ieee"), ("fp32", "tf32")]
DIMS = [(64, 64), (128, 128), (40, 40), (128, 64)]


def test_every_value_of_every_axis_is_in_the_list():
    kinds = list_compile_keys(TRITON, DIMS, FORMATS, 96)

    assert len(kinds) == len(set(kinds)) <= 96
    assert {kind.dims for kind in kinds} == set(DIMS)
    assert {(kind.dtype, kind.precision) for kind in kinds} == set(FORMATS)
    assert {frozenset(), frozenset({"causal", "key_lengths"}), frozenset({"tree"})} < {kind.parts for kind in kinds}
    assert {kind.aligned for kind in kinds} == {True, False}
    assert {value for kind in kinds for _, value in kind.launch} == {16, 32, 64}


def test_most_pairs_of_values_meet():
    kinds = list_compile_keys(TRITON, DIMS, FORMATS, 96)

    assert len({(kind.dims, kind.dtype, kind.precision) for kind in kinds}) == len(DIMS) * len(FORMATS)
    assert len({(kind.dtype, kind.precision, kind.parts) for kind in kinds}) == len(FORMATS) * 6


@pytest.mark.slow
def test_a_compiled_subject_is_drawn_from_the_list_and_a_precompiled_one_is_not():
    def drawn(supports):
        found = set()

        @settings(
            max_examples=250,
            database=None,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(cases(supports, profile=GPU))
        def collect(case):
            aligned = case.storage.gap % 8 == 0 and case.storage.offset % 8 == 0
            found.add((case.dim_qk, case.dim_v, case.dtype, case.precision, case.mask.parts(), aligned, case.launch))

        collect()
        return found

    listed = drawn(TRITON)
    assert len(listed) <= GPU.kinds
    assert len(drawn(dataclasses.replace(TRITON, compiles=False))) > len(listed)
