import math

import pytest

from flashverify.judge.verdict import CaseResult, OutputStats, Status, Verdict, from_hex, to_hex


@pytest.mark.parametrize("value", [0.0, -0.0, 1 / 3, 5e-324, 1.7e308, math.inf, -math.inf])
def test_hex_floats_survive(value):
    assert math.copysign(1, from_hex(to_hex(value))) == math.copysign(1, value)
    assert from_hex(to_hex(value)) == value


def test_nan_survives():
    assert math.isnan(from_hex(to_hex(math.nan)))


def test_a_result_survives_json():
    verdict = Verdict(
        check="accuracy", status=Status.FAIL, output="o", error="bound", ratio="0x1p+3", index=(0, 1, 2, 3)
    )
    result = CaseResult(
        case="fv1", subject="s", evidence="cpu", verdicts=(verdict,), stats=(OutputStats("o", "end-to-end", 4),)
    )

    assert CaseResult.from_json(result.to_json()) == result


def test_key_is_the_identity_of_a_failure_and_safe_as_a_folder_name():
    verdict = Verdict(check="accuracy", status=Status.FAIL, output="o", error="bound", index=(1,), message="m")

    key = verdict.key("../../etc/<x>", "fp16")

    assert key == verdict.key("../../etc/<x>", "fp16")
    assert "/" not in key.slug()
    assert not key.slug().startswith(".")


def stats(elements, exempt, uninformative=0, telling=-1):
    return OutputStats("o", "end-to-end", elements, exempt=exempt, uninformative=uninformative, telling=telling)


@pytest.mark.parametrize(
    ("given", "covering"),
    [
        ((), False),
        ((stats(0, 0),), False),
        ((stats(100, 1),), True),
        ((stats(100, 2),), False),
        ((stats(100, 1, 1),), False),
        ((stats(100, 0, telling=0),), False),
        ((stats(100, 0, telling=0), stats(100, 0, telling=1)), True),
    ],
)
def test_more_than_one_percent_exempt_or_nothing_to_tell_is_no_coverage(given, covering):
    passed = (Verdict(check="accuracy", status=Status.PASS),)

    assert covering == CaseResult(case="fv1", subject="s", evidence="cpu", verdicts=passed, stats=given).coverage


def test_an_unsupported_case_is_no_coverage():
    refused = (Verdict(check="supports", status=Status.UNSUPPORTED, message="why"),)
    result = CaseResult(case="fv1", subject="s", evidence="cpu", verdicts=refused, stats=(stats(100, 0),))

    assert result.unsupported == "why"
    assert not result.coverage
