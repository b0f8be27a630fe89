"""A subject whose `also` refuses every draw ends the search with the reasons; one that refuses most is searched."""

from types import SimpleNamespace

import pytest
from hypothesis import strategies as st

from flashverify import Supports, subject
from flashverify.campaign.protocol import Batch
from flashverify.campaign.toolkit import bundled
from flashverify.campaign.worker.search import draw, search
from flashverify.case import Case
from flashverify.errors import UsageError


def neither(case):
    if case.dtype == "bf16":
        return "dtype=bf16"
    return f"seq_q={case.seq_q} is below 1000" if case.seq_q < 1000 else None


@subject(supports=Supports(also=neither), device="cpu")
def refusing(p):
    raise AssertionError


def session(kernel):
    nothing = SimpleNamespace(strategy=lambda *_: st.nothing(), undrawable=bundled.undrawable)
    return SimpleNamespace(subject=lambda _: kernel, toolkit=nothing, device="cpu")


@pytest.mark.slow
def test_the_message_names_the_conditions_with_their_shares():
    with pytest.raises(UsageError, match=r"^subject 'refusing' is not accepted: `also` refuses every case") as e:
        search(session(refusing), Batch(number=0, subject="refusing", seed=0, examples=20))

    shares = {
        part.split("% ")[1]: int(part.split("% ")[0].split()[-1])
        for part in str(e.value).split("refused: ")[1].split("; ")
    }
    assert sum(shares.values()) == 100
    assert sorted(name.split("=")[0] for name in shares) == ["dtype", "seq_q"]
    assert 20 < shares["dtype=bf16"] < 50


@pytest.mark.slow
@pytest.mark.thorough
def test_a_round_without_a_case_does_not_end_the_draws():
    rare = st.sampled_from([Case(seq_q=n, seq_k=k) for n in range(1, 100) for k in range(1, 20)])

    assert {7} == {case.seq_q for case in draw(rare.filter(lambda case: case.seq_q == 7), 2, 0)}
    assert draw(rare.filter(lambda case: case.seq_q == 100), 2, 0) == ()
