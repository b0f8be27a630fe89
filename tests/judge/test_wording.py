import math

import pytest

from flashverify.judge.wording import (
    duration_text,
    number_text,
    ratio_text,
    share_text,
    time_text,
    tone,
    visible,
)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (None, "–"), (0.0, "0"), (1.0, "1"), (0.25, "0.250"), (160.0, "160"), (25.0, "25.0"), (0.99999, "0.99999"), (1.00004, "1.00004"),
        (math.nan, "NaN"), (math.inf, "∞"), (-math.inf, "-∞"), (12345.0, "1.23e+04"), (1e-300, "1.00e-300"),
        (math.nextafter(1, 2), "1.0000000000000002"), (math.nextafter(1, 0), "0.9999999999999999"),
    ],
)  # fmt: skip
def test_a_ratio_stays_on_its_side_of_one(ratio, text):
    assert ratio_text(ratio) == text


def test_tones():
    assert [tone(r) for r in (None, 0.0, 0.4999, 0.5, 1.0, 1.0001, math.inf, math.nan)] == [
        "none",
        "calm",
        "calm",
        "near",
        "near",
        "over",
        "over",
        "over",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\x1b[0m", "a\\x1b[0m"),
        ("\u202eabc\u200b", "\\u202eabc\\u200b"),
        ("\ud800", "\\ud800"),
        ("größer", "größer"),
    ],
)
def test_control_characters_become_visible(text, shown):
    assert visible(text) == shown


def test_shares_are_exact_at_their_ends():
    assert [share_text(*pair) for pair in ((0, 0), (0, 9), (9, 9), (1, 10**6), (10**6 - 1, 10**6), (1, 3))] == [
        "–",
        "0 %",
        "100 %",
        "< 0.1 %",
        "> 99.9 %",
        "33.3 %",
    ]


def test_durations():
    assert [duration_text(s) for s in (0, 1.25, 59.99, 245, 7380, 1e300, math.nan)] == [
        "0 s",
        "1.25 s",
        "1 min 00 s",
        "4 min 05 s",
        "2 h 03 min",
        "–",
        "–",
    ]


def test_times_and_numbers():
    assert time_text(1.7e9) == "2023-11-14 22:13 UTC"
    assert [time_text(t) for t in (0.0, math.inf, math.nan, 1e300, -5.0)] == [""] * 5
    assert [number_text(t) for t in ("", "0x1.8p+0", "inf", "junk")] == ["", "1.5", "inf", "nan"]
