"""What the comparison of two sides says of every element."""

import json
import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from flashverify.comparing.comparison import compare_sides
from flashverify.comparing.elements import Elements
from flashverify.comparing.functions import ChangedFunction
from flashverify.comparing.judged_sides import JudgedSides
from flashverify.comparing.side_process import Measured
from flashverify.comparing.thresholds import Thresholds
from flashverify.comparing.ulp import ulp_distance
from tests.report.synthetic import result, stats, write_run

CASES = [f"fv1 seq_q={n} seq_k={n} dtype=fp16" for n in range(1, 61)]


def bits16(values):
    return np.asarray(values, np.float16).view(np.int16)


@pytest.mark.parametrize(
    ("before", "after", "distance"),
    [
        (1.0, 1.0 + 2**-10, 1.0),
        (0.0, -0.0, 0.0),
        (2**-24, -(2**-24), 2.0),
        (-1.0, -1.0 - 2**-10, 1.0),
        (math.inf, 1.0, math.inf),
        (math.inf, -math.inf, math.inf),
        (math.inf, math.inf, 0.0),
        (math.nan, 1.0, math.inf),
        (math.nan, math.nan, 0.0),
    ],
)
def test_the_distance_of_two_halves_in_ulp(before, after, distance):
    assert ulp_distance(bits16([before]), bits16([after]), "fp16").tolist() == [distance]


def test_the_distance_of_two_floats_reaches_over_the_whole_range():
    ends = np.array([-3.4028235e38, 3.4028235e38], np.float32).view(np.int32)
    assert ulp_distance(ends[:1], ends[1:], "fp32").tolist() == [2.0 * 0x7F7FFFFF]


def side(values, errors, bound=0.0):
    """An output of fp16 whose exact values are `values`, with errors as shares of the bound."""
    values, errors = np.asarray(values, np.float64), np.asarray(errors, np.float64)
    got = bits16(values + errors * 2**-6)
    return Measured("fp16", got, errors.astype("<f4"), np.sign(values).astype("i1"), bound)


def elements(change, bound=0.0):
    """The elements of 60 cases whose errors `change` maps."""
    found, source = Elements(), np.random.default_rng(0)
    for case in CASES:
        values, errors = source.uniform(1, 4, 50) * source.choice([-1, 1], 50), source.uniform(-0.5, 0.5, 50)
        found.add(case, {"o": side(values, errors)}, {"o": side(values, change(values, errors), bound)})
    return found


def compared(tmp_path, found, functions=()):
    for name in ("before", "after"):
        if not (tmp_path / name).exists():
            write_run(tmp_path / name, [result(case, "kernel", stats=(stats("o", 0.5),)) for case in CASES])
    return compare_sides(JudgedSides((tmp_path / "before", tmp_path / "after"), found, functions, {}))


def test_a_side_compared_with_itself_is_no_change(tmp_path):
    found = compared(tmp_path, elements(lambda _, errors: errors))
    assert (found.decision, found.reasons) == ("may merge", ())
    assert found.sentence == "May merge: no change. Every element of 60 cases has the same bits."


def test_noise_of_the_same_size_is_no_reason(tmp_path):
    source = np.random.default_rng(1)
    found = elements(lambda _, errors: source.permutation(errors))
    assert not found.unchanged
    assert compared(tmp_path, found).reasons == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _, errors: 1.5 * errors, "the errors of o (fp16) grew: x 1.5 !"),
        (lambda _, errors: errors + 0.05, "the bias of o (fp16) moved"),
        (lambda values, errors: errors - 0.05 * np.sign(values), "the errors of o (fp16) drift toward zero"),
        (lambda _, errors: np.where(errors == errors[0], np.inf, errors), "NaN or infinite: 0 before, 60 after"),
    ],
)
def test_a_change_beyond_a_threshold_is_a_reason_to_look(tmp_path, change, said):
    found = compared(tmp_path, elements(change))
    assert found.decision == "look"
    assert any(said in reason for reason in found.reasons), found.reasons


def test_a_looser_form_is_said(tmp_path):
    found = compared(tmp_path, elements(lambda _, errors: errors, bound=2.0))
    assert [r for r in found.reasons if "4 times as wide: the later form is looser" in r]


def test_thresholds_decide(tmp_path):
    found = elements(lambda _, errors: 1.5 * errors)
    write_run(tmp_path / "before", [result(case, "kernel", stats=(stats("o", 0.5),)) for case in CASES])
    sides = JudgedSides((tmp_path / "before", tmp_path / "before"), found)
    assert compare_sides(sides, limits=Thresholds(error_growth=1.6)).decision == "may merge"
    assert compare_sides(sides).decision == "look"


def test_quantiles_are_those_of_all_elements():
    row = elements(lambda _, errors: 2 * errors).rows[0]
    assert row.before.quantile(0.5) == pytest.approx(0.25, rel=0.1)
    assert row.after.quantile(0.5) == pytest.approx(0.5, rel=0.1)
    assert row.before.worst == pytest.approx(0.5, rel=0.01)


def test_the_place_where_errors_grew_comes_first():
    found = Elements()
    for number, case in enumerate([*CASES, *(f"{case} causal=top-left" for case in CASES)]):
        values, errors = np.full(8, 2.0), np.full(8, 0.1)
        grown = 3.0 if number >= 60 else 1.1
        found.add(case, {"o": side(values, errors)}, {"o": side(values, grown * errors)})
    axis, value, place = found.rows[0].moved_most[0]
    assert (axis, value) == ("mask", "causal top-left")
    assert 2**place.growth.mean == pytest.approx(3.0, rel=0.01)


def test_every_format_holds_the_answer(tmp_path):
    hostile = ChangedFunction("k.py:<script>", "changed", "-a\n+<b>")
    found = compared(tmp_path, elements(lambda _, errors: 1.5 * errors), (hostile,))
    page, document = found.to_html(), json.loads(found.to_json())
    assert found.sentence in page.replace("&#39;", "'")
    assert "<script" not in page
    assert "http" not in page
    assert page.count("<svg") == 5
    assert document["elements"]["rows"][0]["growth_octaves"]["mean"] == pytest.approx(math.log2(1.5), rel=0.01)
    assert document["functions"][0]["name"] == "k.py:<script>"
    assert document["thresholds"]["error_growth"] == 1.1
    assert found.sentence in found.to_markdown().replace("\\", "")
    suite = ET.fromstring(found.to_junit())[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "0")
