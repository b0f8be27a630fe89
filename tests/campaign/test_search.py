"""What a batch draws, and where it climbs."""

import importlib
from collections import Counter
from random import Random

import pytest
from hypothesis import strategies as st

from flashverify.campaign.worker.climb import Climber, ratios
from flashverify.campaign.worker.search import draw
from flashverify.case import Case, Grad, Mask, Storage, Values, parse_case
from flashverify.case.space.strategies import cases
from flashverify.case.supports import Supports
from flashverify.judge.verdict import CaseResult, OutputStats

FAMILY = Supports(masks=("causal", "key_lengths", "packed"), logits=("softcap", "sink"), dlse=True)


@pytest.mark.slow
@pytest.mark.thorough
def test_draws_are_independent_of_each_other():
    drawn = draw(cases(FAMILY), 200, 7)

    assert len(set(drawn)) == 200
    # Copies of parts of the case before it would repeat its seed, and most cases would share it with another.
    assert Counter(case.values.seed for case in drawn if case.values.seed > 2).most_common(1)[0][1] < 12
    assert len({(case.values.regime, case.dtype, case.dim_qk, case.dim_v) for case in drawn}) > 150
    assert drawn[:20] == draw(cases(FAMILY), 20, 7) != draw(cases(FAMILY), 20, 8)


def test_a_small_space_is_exhausted():
    few = st.sampled_from([Case(seq_q=n) for n in (1, 2, 3)])

    assert {1, 2, 3} == {case.seq_q for case in draw(few, 100, 0)}


def test_draws_depend_on_no_module_that_happens_to_be_imported(constants_of_modules, tmp_path, monkeypatch):
    seeds = st.builds(Case, values=st.builds(Values, seed=st.integers(0, 2**40)))
    before = draw(seeds, 200, 7)
    (tmp_path / "odd_constants.py").write_text(f"NUMBERS = {[10**9 + 7 * n for n in range(400)]}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("odd_constants")

    assert draw(seeds, 200, 7) == before


def result(case, **worst):
    stats = tuple(
        OutputStats(output=output, mode="end-to-end", elements=1, worst=float(ratio).hex())
        for output, ratio in worst.items()
    )
    return CaseResult(case=str(case), subject="s", evidence="", verdicts=(), stats=stats)


def test_only_positive_finite_ratios_say_something():
    two = result(Case(), o=0.5).stats + result(Case(), o=0.25, dq=0.0, dk=float("inf")).stats
    both = CaseResult(case="", subject="s", evidence="", verdicts=(), stats=two)

    assert ratios(both) == {"o end-to-end": 0.5}


RICH = parse_case(
    "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=20 seq_k=33 dim_qk=24 dim_v=40 dtype=bf16 causal=bottom-right klen=9,33 "
    "softcap=30 sink=yes dropout=0.5 regime=ties seed=3 gap=8 padding=nan launch=block_m:16"
)
"""What a kernel is compiled for must be the same in every neighbour."""


def test_neighbours_differ_only_in_what_needs_no_compilation():
    climber = Climber(0)
    climber.note(RICH, result(RICH, o=0.5))
    found = [case for case in (climber.propose() for _ in range(300)) if case is not None]

    def fixed(case):
        return (
            case.dtype,
            case.dim_qk,
            case.dim_v,
            case.mask.parts(),
            case.logits,
            case.dropout,
            case.storage,
            case.launch,
        )

    assert len(set(found)) > 200
    assert {fixed(case) for case in found} == {fixed(RICH)}
    assert {"seed", "regime", "lengths", "scale", "grad"} <= {
        name
        for case in found
        for name, changed in (
            ("seed", case.values.seed != RICH.values.seed),
            ("regime", case.values.regime != RICH.values.regime),
            ("lengths", (case.seq_q, case.seq_k) != (RICH.seq_q, RICH.seq_k)),
            ("scale", case.scale != RICH.scale),
            ("grad", case.grad != RICH.grad),
        )
        if changed
    }


def test_nothing_noted_proposes_nothing_and_a_forward_keeps_its_gradients_off():
    assert Climber(0).propose() is None
    climber, case = Climber(1), Case(grad=Grad(backward=False), mask=Mask(), storage=Storage(), values=Values())
    climber.note(case, result(case, o=0.5))

    assert not any(c.grad.backward for c in (climber.propose() for _ in range(100)) if c is not None)


@pytest.mark.slow
def test_climbing_comes_closer_than_drawing_alone():
    def distance(case):  # falls where two axes meet: what climbing is for
        return abs(case.seq_k - 60) + abs(case.seq_q - 50) if case.values.regime == "ties" else 200

    def drawn(random):
        regime = "ties" if random.random() < 0.03 else "normal"
        seq_q, seq_k = int(2 ** random.uniform(0, 7)), int(2 ** random.uniform(0, 8))
        return Case(seq_q=seq_q, seq_k=seq_k, values=Values(regime=regime))

    alone, climbed = [], []
    for seed in range(40):
        random, climber = Random(seed), Climber(seed)
        cases = [drawn(random) for _ in range(300)]
        alone.append(min(map(distance, cases)))
        for case in cases[:200]:
            climber.note(case, result(case, o=2.0 ** -distance(case)))
        proposed = []
        for _ in range(100):
            case = climber.propose()
            if case is not None:
                climber.note(case, result(case, o=2.0 ** -distance(case)))
                proposed.append(case)
        climbed.append(min(map(distance, [*cases[:200], *proposed])))

    assert sum(climbed) < 0.8 * sum(alone)


def test_the_same_results_give_the_same_neighbours():
    def walk():
        climber, random = Climber(5), Random(0)
        climber.note(RICH, result(RICH, o=0.1, dq=0.2))
        for _ in range(50):
            case = climber.propose()
            if case is not None:
                climber.note(case, result(case, o=random.random()))
                yield case

    assert list(walk()) == list(walk())
