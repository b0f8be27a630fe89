"""The bundled kernels of quantised K and V, interpreted: codes as torch reads them, whole cases, and planted defects."""

import pytest
import torch
import triton
import triton.language as tl

from flashverify import corrected_interpreter, judge_case, load_subject, parse_case
from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.interpreter.hooks import interpreting
from flashverify.mutants import build_mutant
from flashverify.mutants.bank import QUANTISED
from flashverify_kernels.device.quantised.codes import decoded
from flashverify_kernels.quantised import Quantised, quantised_attention, quantised_decode
from flashverify_kernels.quantised.aot import quantised_source
from flashverify_kernels.quantised.cache import FORMATS
from flashverify_kernels.quantised.constants import prefill_config

SHAPE = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=5 seq_k=70 dim_qk=16 dim_v=16 klen=70,33 padding=nan backward=no"
MUTANTS = {mutant.name: mutant for mutant in QUANTISED}


@pytest.fixture(scope="module", autouse=True)
def interpreter():
    if not interpreting():
        pytest.skip("kernels are compiled in this process")
    with corrected_interpreter():
        yield


@triton.jit
def decode_all(x_ptr, out_ptr, FORMAT: tl.constexpr):
    i = tl.arange(0, 256)
    tl.store(out_ptr + i, decoded(tl.load(x_ptr + i), FORMAT))


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "int8"])
def test_every_code_is_decoded_to_the_number_that_torch_reads(name):
    codes, out = torch.arange(256, dtype=torch.uint8), torch.empty(256)
    dtype = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "int8": torch.int8}[name]

    decode_all[(1,)](codes, out, FORMATS[name].value)

    assert torch.equal(torch.nan_to_num(out, nan=-1.5), torch.nan_to_num(codes.view(dtype).float(), nan=-1.5))
    assert torch.equal(torch.isnan(out), torch.isnan(codes.view(dtype).float()))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("subject", "quantised", "more"),
    [
        ("bundled-quantised", "e4m3/token/varied", "causal=bottom-right dtype=bf16"),
        ("bundled-quantised", "int4/block5/varied/zeros", "window=20,3 launch=mode:1"),
        ("bundled-quantised-decode", "e4m3/head/tails", "launch=mode:2,n_splits:3"),
        ("bundled-quantised-decode", "int4/block8/varied/zeros", "page_size=16 causal=bottom-right window=7,0"),
        ("bundled-quantised-decode", "e5m2/token/varied/q", "page_size=5 launch=mode:1,n_splits:3 dtype=bf16"),
        ("bundled-quantised-decode", "int8/token/fitted", "scale=10000 dtype=bf16 edits=k:0,0,11,0:0x1.fep+127"),
    ],
)
def test_whole_cases_pass_every_check(subject, quantised, more):
    result = judge_case(load_subject(subject), parse_case(f"{SHAPE} quantised={quantised} {more}"))

    assert not result.failures
    assert result.quantisation


def test_a_hidden_value_that_leaves_the_operand_may_reach_every_row():
    """A value of V of -65761 is -inf in fp16, and the weight 0 of its key makes NaN of it."""
    case = parse_case(
        "fv1 seq_q=2 seq_k=17 causal=top-left scale=-1 regime=overflow seed=201 quantised=int8/block1/zero/zeros "
        "batch=2 heads_q=2 heads_kv=2 backward=no launch=mode:1,n_splits:1"
    )

    result = judge_case(load_subject("bundled-quantised-decode"), case, checks=("accuracy", "nonfinite"))

    assert not result.failures


@pytest.mark.parametrize("subject", ["bundled-quantised", "bundled-quantised-decode"])
def test_a_row_without_keys_is_zero_though_a_value_leaves_the_operand(subject):
    case = parse_case(
        "fv1 seq_q=2 dim_qk=8 dim_v=8 window=0,* regime=overflow quantised=int8/tensor/power backward=no launch=mode:1"
    )

    result = judge_case(load_subject(subject), case, checks=("accuracy",))

    assert not result.failures


SHOWN = {
    "zero_point_wraps": "int8/head/fitted/zeros",
    "weights_without_a_factor": "e4m3/head/tails seed=9 launch=mode:2",
    "q_scale_of_the_row_behind": "e4m3/token/varied/q",
    "scale_by_the_key_in_pages": "e4m3/token/varied page_size=16",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_planted_defects_are_seen(name, tmp_path, monkeypatch):
    """A sample; `flashverify mutants` hunts all of them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    subject = toolkit.load(build_mutant(MUTANTS[name], tmp_path))
    case = parse_case(
        f"fv1 heads_q=2 heads_kv=2 seq_q=3 seq_k=64 dim_qk=16 dim_v=16 backward=no quantised={SHOWN[name]}"
    )

    found = {v.output for v in judge_case(subject, case, checks=("accuracy", "nonfinite")).failures}

    assert found & set(MUTANTS[name].outputs)


def cache(**changed):
    given = {
        "codes": torch.zeros(1, 1, 8, 16, dtype=torch.uint8),
        "scale": torch.ones(1, 1, 1),
        "format": "int8",
        "keys_per_scale": 8,
    }
    return Quantised(**(given | changed))


@pytest.mark.parametrize(
    ("k", "named"),
    [
        (cache(format="fp4"), "k.format: expected one of"),
        (cache(scale=torch.ones(1, 1, 2)), r"k.scale: expected shape \(1, 1, 1\)"),
        (cache(scale=torch.ones(1, 1, 1).half()), "k.scale: expected torch.float32"),
        (cache(format="e4m3", zero=torch.zeros(1, 1, 1, dtype=torch.int32)), "k.zero: expected None"),
        (cache(paged=True), "k.paged: only quantised_decode takes pages"),
        (cache(keys_per_scale=0), "k.keys_per_scale: expected 1 or more"),
        (cache(format="int4"), "k: expected the format and heads of v"),
    ],
)
def test_bad_input_is_refused_by_name(k, named):
    with pytest.raises((TypeError, ValueError), match=named):
        quantised_attention(torch.zeros(1, 1, 2, 16), k, cache())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"causal": "bottom_right"}, "causal: expected one of None, 'top-left', 'bottom-right', got 'bottom_right'"),
        ({"precision": "tf31"}, "precision: expected one of"),
        ({"scale": float("nan")}, "scale: expected a finite fp32 number, got nan"),
        ({"n_splits": 1.5}, "n_splits: expected a whole number, got 1.5"),
        ({"n_splits": True}, "n_splits: expected a whole number, got True"),
    ],
)
def test_a_bad_option_is_refused_by_name(options, named):
    with pytest.raises((TypeError, ValueError), match=named):
        quantised_decode(torch.zeros(1, 1, 2, 16), cache(), cache(), **options)


def test_queries_without_a_kv_head_are_refused():
    nothing = cache(codes=torch.zeros(1, 0, 8, 16, dtype=torch.uint8), scale=torch.ones(1, 0, 1))

    with pytest.raises(ValueError, match="q: 2 query heads of 1 sequences do not fit k"):
        quantised_attention(torch.zeros(1, 2, 2, 16), nothing, nothing)


def test_only_rows_of_codes_that_start_on_16_bytes_are_loaded_in_words():
    def of(codes):
        return Quantised(codes=codes, scale=torch.ones(1, 1, 1), format="int8", keys_per_scale=1).in_words

    room = torch.zeros(1, 1, 5, 48, dtype=torch.uint8)
    assert of(room[..., :40])
    assert of(room[..., 16:])
    assert not of(room[..., 8:])
    assert not of(torch.zeros(1, 1, 5, 40, dtype=torch.uint8))


def test_the_prefill_has_large_tiles_where_they_fit_and_stay_in_registers():
    wide = {"codes": "int4", "d": 128, "dv": 128, "dtype": torch.float16}

    assert prefill_config(**wide).block_m == 128
    for other in ({"limit": 163 * 1024}, {"interpreted": True}, {"dtype": torch.float32}, {"d": 192}):
        assert prefill_config(**(wide | other)).block_m <= 64


@pytest.mark.parametrize("decode", [True, False])
@pytest.mark.parametrize(("d", "dtype"), [(8, torch.float16), (16, torch.float32), (256, torch.float32)])
def test_every_product_of_unpacked_bytes_sums_over_32_elements_or_more(decode, d, dtype):
    form = {"decode": decode, "d": d, "dtype": dtype, "mode": "folded", "scale_last": True}

    def tiles(codes):
        found = quantised_source(codes=codes, **form).constants
        return min(found["BLOCK_N"], found["BLOCK_D"], found["BLOCK_DV"])

    assert tiles("int4") >= 32
    assert tiles("int8") == 16
