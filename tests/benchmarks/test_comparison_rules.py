"""The rules of other suites on numbers made by hand: each accepts and each rejects, and fails where it is known to."""

import dataclasses
import math

import pytest
import torch
from comparison_rules.rules import FOREIGN, GPUCHECK, GPUEMU, absolute, baseline, flat, fudge


def t(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)


@dataclasses.dataclass
class Given:
    """References by hand: `fp32`, `eager` and `golden` agree unless they are set."""

    fp32: dict
    low: dict = None
    eager: dict = None
    golden: dict = None
    dtype: str = "fp16"
    cached: bool = False
    softcap: bool = False
    alibi: bool = False

    def __post_init__(self):
        self.low = self.low or self.fp32
        self.eager = self.eager or self.low
        self.golden = self.golden or self.fp32


@pytest.mark.parametrize(
    ("actual", "expected", "rejected"),
    [
        (t(1.0), t(1.0), False),
        (t(1.019), t(1.0), False),
        (t(1.021), t(1.0), True),
        (t(math.nan), t(math.nan), True),
        (t(math.inf), t(math.inf), False),
        (t(math.inf), t(-math.inf), True),
        (t(math.inf), t(1.0), True),
        (t(), t(), False),
    ],
)
def test_a_flat_tolerance(actual, expected, rejected):
    assert rejected == flat(actual, expected, 1e-2, 1e-2)


def test_a_flat_tolerance_accepts_zeros_where_the_output_is_small():
    small = t(*(0.0075 * (-1) ** n for n in range(8)))

    assert not flat(torch.zeros(8), small, 1e-2, 1e-2)
    assert flat(torch.zeros(8), 4 * small, 1e-2, 1e-2)


@pytest.mark.parametrize(
    ("actual", "expected", "rejected"),
    [
        (t(1.04), t(1.0), False),
        (t(1.06), t(1.0), True),
        (t(100.06), t(100.0), True),
        (t(math.nan), t(1.0), True),
        (t(-math.inf), t(-math.inf), True),
        (t(1.0), t(math.nan), False),
    ],
    ids=["inside", "outside", "not-relative", "nan", "a-right-infinity", "nan-expected"],
)
def test_an_absolute_tolerance_that_ignores_what_the_reference_says_of_non_finite_values(actual, expected, rejected):
    assert rejected == absolute(actual, expected, 5e-2)


@pytest.mark.parametrize(
    ("error", "of_the_baseline", "atol", "rejected"),
    [
        (2.0, 1.0, 0.0, False),
        (2.1, 1.0, 0.0, True),
        (2.1, 1.0, 0.2, False),
        (1e-6, 0.0, 0.0, True),
        (1e-6, 0.0, 1e-5, False),
        (0.0, 0.0, 0.0, False),
        (math.nan, 1.0, 0.0, True),
        (1.0, math.nan, 0.0, True),
        (1e9, math.inf, 0.0, False),
    ],
    ids=[
        *("twice", "more", "more-within-atol", "exact-baseline", "exact-baseline-within-atol", "both-exact"),
        *("nan", "nan-baseline", "baseline-overflowed"),
    ],
)
def test_a_multiple_of_a_baselines_error(error, of_the_baseline, atol, rejected):
    reference = t(0.0, 0.0)

    assert rejected == baseline(t(0.0, error), reference, t(of_the_baseline, 0.0), 2.0, atol)


@pytest.mark.parametrize(
    ("actual", "eager", "factor", "rejected"),
    [
        (t(1.09, 0.0), t(1.0, 0.0), 1.1, False),
        (t(1.2, 0.0), t(1.0, 0.0), 1.1, True),
        (t(1.2, 0.0), t(1.0, 0.0), 10.0, False),
        (t(0.0, 40.0), t(*[1.0] * 2), 1.1, True),
        (t(math.nan, 0.0), t(1.0, 0.0), 1.1, True),
        (t(0.0, 0.0), t(math.nan, 0.0), 1.1, True),
        (t(math.inf, 0.0), t(math.inf, 0.0), 1.1, False),
    ],
)
def test_a_mean_error_with_a_fudge_factor(actual, eager, factor, rejected):
    assert rejected == fudge(torch.zeros(2, dtype=torch.float64), eager, actual, factor)


def test_a_mean_error_dilutes_one_wrong_element():
    golden, eager, actual = torch.zeros(1000), torch.full((1000,), 1e-3), torch.full((1000,), 1e-3)
    actual[7] = 0.05

    assert not fudge(golden, eager, actual, 1.1)
    assert baseline(actual, golden, eager, 2.0)


RIGHT = {"o": t(1.0, 2.0), "lse": t(3.0), "dq": t(0.5), "dk": t(0.25), "dv": t(0.125)}
NEAR = {name: value * 1.001 for name, value in RIGHT.items()}


def given(**changes):
    return dataclasses.replace(Given(fp32=RIGHT, low=NEAR), **changes)


def with_wrong(name):
    return RIGHT | {name: RIGHT[name] + 1.0}


@pytest.mark.parametrize("rule", FOREIGN)
def test_every_rule_accepts_the_reference(rule):
    assert FOREIGN[rule](RIGHT, given()) is False


SEEN = {
    "allclose": "o dq dk dv",
    "allclose+lse": "o lse dq dk dv",
    "flash-2": "o dq dk dv",
    "flash-3": "o dq dk dv",
    "flex": "o lse dq dk dv",
    "gpucheck": "o dq dk dv",
    "gpuemu": "o",
}


@pytest.mark.parametrize("rule", FOREIGN)
@pytest.mark.parametrize("name", RIGHT)
def test_a_rule_sees_the_outputs_that_it_compares_and_no_others(rule, name):
    assert (name in SEEN[rule].split()) is FOREIGN[rule](with_wrong(name), given())


@pytest.mark.parametrize("rule", ["flash-2", "flash-3"])
def test_flash_attention_has_no_fp32(rule):
    assert FOREIGN[rule](with_wrong("o"), given(dtype="fp32")) is None


def test_decoding_is_allowed_three_times_the_error_and_with_alibi_five_times():
    outputs = {"o": RIGHT["o"] * 1.0029}

    assert FOREIGN["flash-2"](outputs, given())
    assert not FOREIGN["flash-2"](outputs, given(cached=True))
    outputs = {"o": RIGHT["o"] * 1.0049}
    assert FOREIGN["flash-2"](outputs, given(cached=True))
    assert not FOREIGN["flash-2"](outputs, given(cached=True, alibi=True))


def test_a_last_place_beside_an_exact_baseline_is_rejected_by_flash_2_and_not_by_flash_3():
    exact = {"o": t(3.9, dtype=torch.float16)}
    outputs = {"o": exact["o"] + 2.0**-9}

    assert FOREIGN["flash-2"](outputs, Given(fp32=exact, low=exact))
    assert not FOREIGN["flash-3"](outputs, Given(fp32=exact, low=exact))
    assert FOREIGN["flash-3"]({"o": exact["o"] + 2.0**-6}, Given(fp32=exact, low=exact))


def test_fp32_is_given_ten_times_the_mean_error():
    outputs = {"o": RIGHT["o"] * 1.005}

    assert FOREIGN["flex"](outputs, given())
    assert not FOREIGN["flex"](outputs, given(dtype="fp32"))


@pytest.mark.parametrize(("rule", "table"), [("gpucheck", GPUCHECK), ("gpuemu", GPUEMU)])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_tables_by_dtype(rule, table, dtype):
    reference = {"o": t(1.0)}
    allowed = table[dtype] * (2.0 if rule == "gpucheck" else 1.0)

    assert not FOREIGN[rule]({"o": t(1.0 + 0.9 * allowed)}, Given(fp32=reference, dtype=dtype))
    assert FOREIGN[rule]({"o": t(1.0 + 1.1 * allowed)}, Given(fp32=reference, dtype=dtype))


def test_a_right_infinity_is_rejected_by_gpuemu_alone():
    outputs = {"o": t(math.inf, 2.0)}
    low = {"o": t(math.inf, 2.0)}

    assert FOREIGN["gpuemu"](outputs, Given(fp32=outputs, low=low))
    assert not FOREIGN["allclose"](outputs, Given(fp32=outputs, low=low))
