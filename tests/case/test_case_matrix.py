import itertools

import pytest

from flashverify.case import (
    DTYPES,
    LAYOUTS,
    PLAIN_POISONS,
    PRECISIONS,
    REGIMES,
    benchmark_cases,
    format_case,
    standard_matrix,
)
from flashverify.case.space.matrix import _case
from flashverify.case.space.matrix_table import focus, large
from flashverify.case.values.adversarial import ADVERSARIAL
from flashverify.errors import UsageError
from flashverify.subjects.interface import Supports

WIDE = Supports(
    precisions=PRECISIONS,
    masks=("causal", "key_lengths", "query_lengths", "tree", "window"),
    empty=True,
    scales=("positive", "zero", "negative"),
    dlse=True,
    launch=(("block_m", (16, 32, 64)), ("block_n", (16, 32, 64))),
)


WIDE_BLOCKS = Supports(masks=("blocks",))


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def matrix(request):
    return standard_matrix(WIDE, device=request.param)


def test_every_entry_of_the_table_is_a_case_on_its_own():
    base = "batch=1 heads_q=2 heads_kv=1 seq_q=33 seq_k=33 dim_qk=32 dim_v=32"

    assert [entry for entry in (*focus(), *large()) if _case([base, entry]) is None] == []


def test_the_matrix_has_every_value_of_every_axis(matrix):
    def met(values):
        return set(itertools.chain.from_iterable(map(values, matrix)))

    assert set(itertools.product(REGIMES, DTYPES)) <= met(lambda c: [(c.values.regime, c.dtype)])
    assert set(itertools.product(PLAIN_POISONS, LAYOUTS)) <= met(lambda c: [(c.storage.padding, c.storage.layout)])
    assert set(PRECISIONS) == met(lambda c: [c.precision])
    assert set(WIDE.masks) == met(lambda c: c.mask.parts())
    assert set(itertools.product(("top-left", "bottom-right", None), DTYPES)) <= met(
        lambda c: [(c.mask.causal, c.dtype)]
    )
    assert set(itertools.product(("top-left", "bottom-right"), (-1, 0, 1))) <= met(
        lambda c: [(c.mask.causal, (c.seq_q > c.seq_k) - (c.seq_q < c.seq_k))]
    )
    assert {"dense", "expanded", "transposed", "zero"} == met(lambda c: [c.grad.do])
    assert {(True, True), (False, True)} <= met(lambda c: [(c.grad.dlse, c.grad.backward)])
    assert {1, 15, 16, 17, 31, 32, 33, 63, 64, 65} <= met(lambda c: [c.seq_k])
    assert {1, 2, 3} <= met(lambda c: [c.heads_q // c.heads_kv])
    assert {-1, 0, 1} == met(lambda c: [(c.softmax_scale > 0) - (c.softmax_scale < 0)])
    assert {8, 16, 24, 40, 64, 72, 128, 256} <= met(lambda c: [c.dim_qk])
    assert {0, 1, 32} <= met(lambda c: c.mask.key_lengths or ())
    assert set(itertools.product(("nan", "inf", "-inf"), "qkv")) <= met(
        lambda c: [(str(e.value), e.tensor) for e in c.values.edits]
    )
    assert {16, 32, 64} == met(lambda c: dict(c.launch).values())
    assert {True} <= met(lambda c: [c.storage.expand])


def test_the_matrix_is_fixed_unique_and_supported(matrix):
    assert len(matrix) == len(set(matrix))
    assert matrix in (standard_matrix(WIDE, device="cpu"), standard_matrix(WIDE, device="cuda"))
    assert all(WIDE.refusal(case) is None for case in matrix)


def test_the_cpu_matrix_is_small_enough_for_ci():
    matrix = standard_matrix(WIDE, device="cpu")

    assert 250 <= len(matrix) <= 345
    assert max(c.batch * c.heads_q * c.seq_q * c.seq_k for c in matrix) <= 20_000


def test_the_gpu_matrix_holds_the_cpu_one_and_longer_sequences():
    gpu = standard_matrix(WIDE, device="cuda")

    assert len(gpu) > len(standard_matrix(WIDE, device="cpu"))
    assert max(c.seq_k for c in gpu) == 32_768
    assert max(c.seq_k for c in gpu if c.seq_q > 1) == 1025


def test_long_keys_stand_early_and_blocks_are_more_than_eight():
    decoding = standard_matrix(Supports(max_seq_q=8, backward=False), device="cpu")
    places = [number for number, case in enumerate(decoding) if case.seq_k > 8192]

    assert places
    assert max(places) < 30
    assert any(c.mask.blocks and c.seq_k > 8 * c.mask.blocks.keys for c in standard_matrix(WIDE_BLOCKS, device="cpu"))


NARROW = {
    "plain": (Supports(), 120),
    "bf16, 64": (
        Supports(dtypes=("bf16",), masks=("causal",), dim_multiple=64, dim_max=64, equal_dims=True, gqa=False),
        40,
    ),
    "square": (
        Supports(masks=("causal",), causal=("top-left",), rectangular_causal=False, gqa=False, unaligned=False),
        90,
    ),
    "forward": (Supports(backward=False), 90),
    "negative": (Supports(scales=("negative",)), 90),
    "zero": (Supports(scales=("zero",)), 90),
    "tf32": (Supports(precisions=("tf32",)), 40),
}


@pytest.mark.parametrize("name", NARROW)
def test_a_narrow_subject_has_a_matrix_too(name):
    supports, least = NARROW[name]
    matrix = standard_matrix(supports, device="cpu")

    assert len(matrix) >= least
    assert all(supports.refusal(case) is None for case in matrix)
    assert {case.dtype for case in matrix} == set(supports.dtypes)


def test_another_device_is_refused():
    with pytest.raises(UsageError, match="device='tpu' is not accepted"):
        standard_matrix(WIDE, device="tpu")


def test_the_benchmark_list_is_two_hundred_canonical_lines():
    from importlib import resources

    lines = (
        resources.files("flashverify.case.space")
        .joinpath("benchmark_cases.txt")
        .read_text(encoding="ascii")
        .splitlines()
    )

    assert 200 == len(benchmark_cases()) == len(set(benchmark_cases()))
    assert lines == [format_case(case) for case in benchmark_cases()]
    assert set(REGIMES) - set(ADVERSARIAL) == {case.values.regime for case in benchmark_cases()}
    assert set(DTYPES) == {case.dtype for case in benchmark_cases()}
