"""Cases whose heads have regimes of their own: values, text, the case of one head, shrinking."""

import dataclasses

import numpy as np
import pytest

from flashverify.campaign.shrink.shrinker import shrink
from flashverify.case.case import Values
from flashverify.case.heads import head_regimes, heads_alone
from flashverify.case.space.value_draws import draw_values
from flashverify.case.text import format_case, parse_case
from flashverify.case.values.tensor_bits import tensor_bits
from flashverify.errors import CaseTextError

MIXED = (
    "fv1 batch=2 heads_q=6 heads_kv=2 seq_q=5 seq_k=17 dim_v=8 causal=top-left klen=9,13 regime=ties,overflow,one-hot seed=7",
    "fv1 heads_q=4 heads_kv=4 seq_q=9 seq_k=11 dtype=fp32 packed=0,4,9/0,6,11 regime=one-hot,normal seed=3",
    "fv1 batch=3 heads_q=4 heads_kv=2 seq_q=6 seq_k=7 scale=-0.125 regime=few-keys,tiny expand=yes do=transposed",
    "fv1 batch=2 heads_q=2 heads_kv=2 seq_q=6 seq_k=7 dim_qk=24 regime=v-is-k,spikes,shifted kv=shared backward=no",
)


def heads_of(case):
    """(entry, query heads, heads of k) of each stored head, as slices, batch entries one after the other."""
    stored = 1 if case.storage.expand else case.heads_kv
    group = case.heads_q // stored
    for entry in range(case.batch):
        for head in range(stored):
            yield slice(entry, entry + 1), slice(head * group, (head + 1) * group), slice(head, head + 1)


@pytest.mark.parametrize("text", MIXED)
def test_the_text_of_a_mixed_case_gives_it_back(text):
    assert text == format_case(parse_case(text))


@pytest.mark.parametrize("text", MIXED)
def test_each_head_has_the_bits_of_the_case_of_it_alone(text):
    case = parse_case(text)
    whole, places = tensor_bits(case), list(heads_of(case))
    alone = list(heads_alone(case))
    assert len(places) == len(alone)
    for (entry, of_q, of_k), one in zip(places, alone, strict=True):
        own = tensor_bits(one)
        for name, bits in own.items():
            assert np.array_equal(whole[name][entry, of_k if name in ("k", "v") else of_q], bits)


def test_heads_take_the_regimes_in_turn_and_differ_where_these_are_alike():
    case = parse_case("fv1 batch=2 heads_q=2 heads_kv=2 seq_q=4 seq_k=6 regime=normal,zeros,normal")
    q = tensor_bits(case)["q"].reshape(4, -1)

    assert head_regimes(case) == ("normal", "zeros", "normal", "normal")
    assert not q[1].any()
    assert len({q[n].tobytes() for n in (0, 2, 3)}) == 3


def test_an_expanded_do_is_one_element_of_the_whole_case():
    case = parse_case("fv1 batch=2 heads_q=2 heads_kv=2 seq_q=4 seq_k=6 regime=zeros,overflow do=expanded seed=5")
    plain = dataclasses.replace(case, values=Values(seed=5))

    assert tensor_bits(plain)["do"].tolist() == tensor_bits(case)["do"].tolist()


@pytest.mark.parametrize("regime", ["ties,", ",ties", "ties,unknown", "ties;zeros", ""])
def test_an_unknown_regime_among_several_is_refused(regime):
    with pytest.raises(CaseTextError, match="regime"):
        parse_case(f"fv1 heads_q=2 heads_kv=2 regime={regime}")


def shrunk(case, fails):
    steps = shrink(case)
    candidate = next(steps)
    while True:
        try:
            candidate = steps.send(fails(candidate))
        except StopIteration as stop:
            return stop.value


def minimal(fails, text="fv1 batch=2 heads_q=4 heads_kv=2 seq_q=9 seq_k=9 regime=ties,overflow,one-hot,spikes seed=40"):
    return format_case(shrunk(parse_case(text), fails))


def test_a_failure_of_one_head_shrinks_to_the_regime_of_that_head():
    def fails(case):
        return "one-hot" in (head_regimes(case) or (case.values.regime,))

    assert minimal(fails) == "fv1 dim_qk=1 dim_v=1 regime=one-hot backward=no"


def test_a_failure_of_the_very_values_of_one_head_keeps_them():
    """The seed of a head follows from its number: the third one of seed 40 has 42."""

    def fails(case):
        pairs = [case.values] if not case.values.mixed else [case.values.of_head(n) for n in range(2 * case.batch)]
        return Values(regime="one-hot", seed=42) in pairs

    assert minimal(fails) == "fv1 dim_qk=1 dim_v=1 regime=one-hot seed=42 backward=no"


def test_a_failure_that_two_regimes_make_together_keeps_both_and_no_other():
    def fails(case):
        return {"overflow", "one-hot"} <= set(head_regimes(case))

    assert minimal(fails) == "fv1 heads_q=2 heads_kv=2 dim_qk=1 dim_v=1 regime=overflow,one-hot backward=no"


@pytest.mark.parametrize("poisons", [("mixed", "max"), ("mixed",)])
def test_a_poison_of_each_head_shrinks_to_the_one_that_shows_the_failure(poisons):
    found = minimal(lambda c: c.storage.padding in poisons, f"{MIXED[0]} padding=mixed")

    assert found == f"fv1 dim_qk=1 dim_v=1 regime=zeros padding={poisons[-1]} backward=no"


class First:
    """The draw of the last choice of everything."""

    def __call__(self, strategy):
        from hypothesis import find, settings

        return find(strategy, lambda x: x is not False, settings=settings(database=None))


def test_a_case_of_one_head_has_one_regime_and_others_have_as_many_as_they_have_heads():
    assert not draw_values(First(), 1).mixed
    for heads in (2, 3, 8, 20):
        regimes = draw_values(First(), heads).regimes
        assert min(heads, 8) == len(regimes) == len(set(regimes))
