"""Rules that separate cases, the simplest first."""

from flashverify.diagnosis.learning import rules


def first(positive, negative):
    return tuple(map(str, rules(positive, negative)[0].conditions))


def case(seq_q=5, seq_k=7, dim=8, **words):
    return {"seq_q": seq_q, "seq_k": seq_k, "dim_qk": dim, "dim_v": dim, **words}


def test_without_a_counterexample_nothing_is_asked():
    assert first([case()], []) == ()


def test_an_order_of_two_sizes_is_found():
    assert first([case(9, 7), case(40, 3)], [case(5, 7), case(40, 41), case(7, 7)]) == ("seq_q > seq_k",)


def test_a_remainder_is_found():
    positive = [case(seq_k=n) for n in (5, 70, 80, 96, 129, 200)]
    negative = [case(seq_k=n) for n in (64, 128, 192)]
    assert first(positive, negative) == ("seq_k % 64 != 0",)


def test_a_head_dim_is_one_value_rather_than_a_limit():
    assert first([case(dim=128), case(dim=128, seq_q=9)], [case(), case(dim=64)]) == ("dim_qk == 128",)


def test_a_limit_is_the_most_natural_one_between_the_cases():
    assert first([case(seq_k=70), case(seq_k=200)], [case(seq_k=50), case(seq_k=7)]) == ("seq_k >= 64",)


def test_two_conditions_are_joined():
    with_both = [case(sink="yes", causal="top-left"), case(9, 9, sink="yes", causal="bottom-right")]
    without = [case(sink="no", causal="top-left"), case(sink="yes", causal="no"), case(sink="no", causal="no")]
    assert first(with_both, without) == ("causal != no", "sink == yes")


def test_nothing_separates_equal_cases():
    assert rules([case()], [case()]) == []


def test_a_value_that_a_case_lacks_makes_no_condition_hold():
    (rule, *_) = rules(
        [case(page_size=16), case(page_size=16, seq_q=9)], [case(), case(page_size=8), case(page_size=32)]
    )
    assert [str(each) for each in rule.conditions] == ["page_size == 16"]
    assert rule.of(case()) is False
    assert rule.of(case(page_size=16)) is True
