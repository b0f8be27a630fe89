"""Conditions: their text, what they say of a case and of places in it, and their words."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.condition_words import phrase
from flashverify.diagnosis.conditions import Condition, holds, in_words, parse
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.places import PLACES, region_of
from flashverify.errors import UsageError
from tests.diagnosis.planted import Plain

TEXTS = [
    "seq_q > seq_k",
    "dim_qk == 128",
    "seq_k % 64 != 0",
    "causal == top-left",
    "launch.splits >= 2",
    "max_logit >= 100",
    "least_row_max < -100.5",
    "key_tile[64] == last",
    "row >= keys",
    "head == last",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_of_a_condition_is_parsed_back(text):
    assert str(parse(text)) == text


def test_every_place_has_a_text_and_words():
    for place in PLACES:
        assert parse(str(place)) == place
        assert in_words([place]).startswith(("only in ", "only where "))
    assert len({in_words([place]) for place in PLACES}) == len(PLACES)


@pytest.mark.parametrize("text", ["", "seq_q", "seq_q = 3", "seq_q > seq_k > 1", "key_tile[x] == last", "D == 128 "])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(UsageError, match="condition="):
        parse(text)


CASE = parse_case(
    "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=9 seq_k=7 causal=bottom-right klen=7,5 backward=no dtype=fp32"
)


@pytest.mark.parametrize(
    ("texts", "answer"),
    [
        (["seq_q > seq_k"], True),
        (["seq_q < seq_k"], False),
        (["seq_q > seq_k", "dtype == bf16"], False),
        (["group >= 2", "causal == bottom-right", "key_lengths == yes"], True),
        (["window != no"], False),
        (["launch.splits >= 2"], False),
        (["seq_k % 8 != 0"], True),
        (["max_logit >= 1"], None),
        (["head >= 1"], None),
        (["head >= 1", "dtype == fp16"], False),
        ([], True),
    ],
)
def test_conditions_hold_for_a_case_or_not_or_that_depends(texts, answer):
    assert holds(texts, CASE) is answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("member >= 1", lambda b, h, i, j: h % 2 == 1),
        ("kv_head == last", lambda b, h, i, j: h >= 2),
        ("sequence >= 1", lambda b, h, i, j: b == 1),
        ("keys % 16 != 0", lambda b, h, i, j: b >= 0),
        ("keys == 5", lambda b, h, i, j: b == 1),
        ("row >= keys", lambda b, h, i, j: i >= 7 - 2 * b),
        ("key_tile[4] == last", lambda b, h, i, j: j >= 4),
        ("key_tile[4] == partial", lambda b, h, i, j: j >= 4),
        ("row_tile[4] == first", lambda b, h, i, j: i < 4),
        ("row == last", lambda b, h, i, j: i == 8),
        ("dtype == fp16", lambda b, h, i, j: b < 0),
    ],
)
def test_a_place_is_where_its_condition_holds(text, expected):
    scene = look(Plain(), CASE)
    got = region_of(scene, [parse(text)]).pairs.expand(2, 4, 9, 7)
    b, h, i, j = torch.meshgrid(*map(torch.arange, (2, 4, 9, 7)), indexing="ij")
    assert torch.equal(got, expected(b, h, i, j))


def test_elements_whose_pairs_lie_on_both_sides_belong_to_no_side():
    scene = look(Plain(), parse_case(str(CASE).replace(" backward=no", "")))
    members = region_of(scene, [parse("member >= 1")])
    assert members.elements("dk", scene.outputs["dk"].shape) is None
    assert members.elements("dq", scene.outputs["dq"].shape)[:, 1::2].all()
    tail = region_of(scene, [parse("key_tile[4] == last")])
    assert tail.elements("o", scene.outputs["o"].shape) is None
    assert tail.elements("dv", scene.outputs["dv"].shape)[:, :, 4:].all()
    assert not tail.elements("dv", scene.outputs["dv"].shape)[:, :, :4].any()
    channels = region_of(scene, [parse("channel >= 8")])
    assert not channels.elements("lse", scene.outputs["lse"].shape).any()
    assert channels.elements("o", scene.outputs["o"].shape)[..., 8:].all()


def test_words_name_what_a_reader_knows():
    conditions = [Condition("seq_q", ">", "seq_k"), Condition("window", "!=", "no")]
    assert in_words(conditions) == "only where Sq > Sk and with a window"
    assert in_words([]) == ""
    assert in_words(map(parse, ["dim_qk < 65", "dim_qk >= 33", "dlse == yes"])) == (
        "only where 33 <= D < 65 and with a gradient through the LSE"
    )
    assert phrase("seq_k", "!=", 0, modulus=64) == "where Sk is no multiple of 64"
    assert phrase("key_tile", "==", "last", tile=64) == "in the last tile of 64 keys"
    assert phrase("sink", "==", "no") == "without sinks"
