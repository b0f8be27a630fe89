"""What an edit makes of the failing case, and that an endless one ends."""

import signal
import threading
from types import SimpleNamespace

import pytest
import torch

from flashverify.repair.bench import Effect, _effect, bench, within
from flashverify.repair.pool import reward
from tests.repair.changing import CASE, Changing


def endless():
    while True:
        pass


def endless_and_stubborn():
    while True:
        try:
            endless()
        except Exception:
            continue


@pytest.mark.parametrize("run", [endless, endless_and_stubborn])
def test_what_never_ends_is_ended(run):
    before = signal.getsignal(signal.SIGALRM)

    with pytest.raises(TimeoutError), within(0.02):
        run()

    assert signal.getsignal(signal.SIGALRM) is before


def test_what_ends_in_time_is_left_alone():
    before = signal.getsignal(signal.SIGALRM)
    with within(100.0):
        assert signal.getsignal(signal.SIGALRM) is not before
    with pytest.raises(KeyError), within(100.0):
        raise KeyError
    assert signal.getsignal(signal.SIGALRM) is before


def test_an_alarm_that_was_set_before_is_set_again():
    before, seen = signal.getsignal(signal.SIGALRM), []
    left = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
        signal.setitimer(signal.ITIMER_REAL, 500.0, 7.0)
        with within(100.0):
            pass
        delay, again = signal.getitimer(signal.ITIMER_REAL)
        signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *left)

    assert 0 < delay <= 500.0
    assert again == 7.0
    assert not seen


def test_another_thread_has_no_limit():
    seen = []

    def run():
        with within(0.0):
            seen.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert seen == [True]


# --- the effect -------------------------------------------------------------------------------------------------------


def flags(*values):
    return torch.tensor(values, dtype=torch.bool)


def test_the_shares_of_an_effect_are_counted_over_all_outputs():
    scene = SimpleNamespace(right={"o": None, "lse": None}, failures={"o": flags(1, 1, 1, 0)})
    failing = {"o": flags(0, 1, 1, 0), "lse": flags(1, 0)}
    changed = {"o": flags(1, 1, 0, 0), "lse": flags(1, 0)}

    found = _effect(scene, failing, changed, frozenset({"o", "lse"}))

    assert not found.repaired
    assert found.fixed == pytest.approx(1 / 3)
    assert found.touched == pytest.approx(2 / 3)
    assert found.broken == pytest.approx(1 / 3)
    assert found.changed == {"o", "lse"}


@pytest.mark.parametrize(("lse", "repaired"), [(flags(0, 0), True), (flags(0, 1), False)])
def test_a_repair_leaves_nothing_wrong(lse, repaired):
    scene = SimpleNamespace(right={"o": None, "lse": None}, failures={"o": flags(1, 0)})
    changed = {"o": flags(1, 0), "lse": lse}

    found = _effect(scene, {"o": flags(0, 0), "lse": lse}, changed, frozenset({"o"}))

    assert found.repaired is repaired
    assert found.fixed == 1.0


def test_a_subject_that_is_right_has_no_bench():
    assert bench(Changing(lambda _: 0).subject, CASE) is None


@pytest.fixture
def changing():
    return Changing()


def test_the_effect_of_an_edit_is_what_the_subject_makes_of_the_case_with_it(changing):
    found = bench(changing.subject, CASE)

    assert found.wrong == {"o", "lse"}
    assert found.effect() == Effect()
    with changing.as_if(shift=lambda _: 0):
        assert found.effect() == Effect(repaired=True, fixed=1.0, touched=1.0, changed=frozenset({"o", "lse"}))
    with changing.as_if(shift=lambda _: -1):
        below = found.effect()
    assert not below.repaired
    assert below.changed == {"o", "lse"}
    with changing.as_if(shift=lambda _: 2):
        assert found.effect().fixed == 0.0
    assert found.effect() == Effect()


def test_an_edit_that_raises_or_has_other_shapes_has_no_effect_to_judge(changing):
    found = bench(changing.subject, CASE)

    with changing.as_if(raising=lambda _: True):
        assert found.effect() is None


def test_an_edit_that_stores_to_an_input_does_so_to_no_other(changing):
    found = bench(changing.subject, CASE)

    with changing.as_if(begun=lambda p: p.k.zero_()):
        assert found.effect().changed == {"o", "lse"}
    assert found.effect() == Effect()
    changing.begun = lambda p: p.k.zero_()
    stored = bench(changing.subject, CASE)
    assert stored.effect() == Effect()
    with changing.as_if(begun=lambda _: None, shift=lambda _: 0):
        assert stored.effect().repaired


def test_an_endless_edit_has_no_effect_to_judge(changing):
    found = bench(changing.subject, CASE)
    found._limit = 0.05

    with changing.as_if(raising=lambda _: endless()):
        assert found.effect() is None
    assert found.effect() == Effect()


def test_an_edit_that_repairs_rewards_most_and_one_that_breaks_others_least():
    wrong = frozenset({"o"})
    right = Effect(repaired=True, fixed=1.0, touched=1.0, aimed=1.0, changed=wrong)
    moved = Effect(touched=1.0, aimed=1.0, changed=wrong)
    everything = Effect(touched=1.0, broken=0.1, changed=wrong)
    astray = Effect(broken=1.0, aimed=-0.5, changed=frozenset({"dq"}))

    found = [reward(each) for each in (right, moved, everything, None, Effect(), astray)]

    assert found[:3] == sorted(found[:3], reverse=True)
    assert found[0] == pytest.approx(2.0)
    assert min(found[:3]) > -0.1 > found[3] > found[4] >= found[5]
