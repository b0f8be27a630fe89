"""A name that leaves a doubt is held against what is read off the kernel, and the one that explains more is said."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from flashverify.case.case import Grad
from flashverify.case.text import parse_case
from flashverify.diagnosis import arbitration
from flashverify.diagnosis.arbitration import Hearing
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Claim
from flashverify.diagnosis.conditions import parse
from flashverify.diagnosis.naming import Named
from flashverify.diagnosis.opening import unwritten_read, watched_always
from flashverify.diagnosis.readings import Readings
from flashverify.diagnosis.related_cases import grown
from flashverify.diagnosis.saying import named_diagnosis, ruled_diagnosis
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.conditional import when
from tests.diagnosis.planted import Plain, planted
from tests.diagnosis.test_diagnosis import FORWARD, named

CAUSAL = "fv1 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32 causal=top-left backward=no"
IGNORED = {"causal": lambda s, i, j: j >= 0}
EXACT = Readings(
    ("O sees keys behind the diagonal",), "each reading holds on at least 5 failing cases", True, False, True
)
COARSE = EXACT._replace(part=True)


def claim(name, *conditions):
    semantics = next(each for each in SEMANTICS if each.name == name)
    return Claim(semantics, tuple(map(parse, conditions)))


def answer(*claims, clear=9, **given):
    return Named(list(claims), claims[0].conditions, "it explains 9 further cases, 9 of them clearly", clear, **given)


def ruled(monkeypatch, subject, given, read, *, keys=9):
    """What is ruled of an answer where the readings run one fresh case with more keys."""
    trials = Trials(subject, 300, kept=0.4)
    start = trials.scene(parse_case(CAUSAL))

    def asked(trials, scene, output):
        trials.scene(grown(scene.case, 1, keys, regime="normal", seed=3))
        return read

    monkeypatch.setattr(arbitration, "readings", asked)
    return Hearing(trials, "o").ruling(start, given), start


def up_to_ten_keys(s, i, j):
    return (j >= 0) if j.shape[-1] <= 10 else (j <= i + 2)


class Otherwise(Plain):
    """The causal mask is ignored for few keys, and shifted by two for many."""

    causal = up_to_ten_keys


def test_a_name_that_holds_always_on_enough_cases_is_said_without_more(monkeypatch):
    ruling, _ = ruled(monkeypatch, planted(**IGNORED), answer(claim("causal-ignored")), EXACT)

    assert ruling.answer is not None
    assert not ruling.read.sentences


@pytest.mark.parametrize("read", [EXACT, COARSE])
def test_a_name_with_conditions_goes_where_a_fresh_case_is_wrong_in_another_way(monkeypatch, read):
    ruling, _ = ruled(monkeypatch, Otherwise(), answer(claim("causal-ignored", "causal != no")), read)

    assert ruling.answer is None


def test_a_second_defect_in_another_kernel_takes_no_name_away(monkeypatch):
    subject = planted(**IGNORED, delta_factor=2.0)

    def asked(trials, scene, output):
        trials.scene(dataclasses.replace(grown(scene.case, 6, 9, regime="normal", seed=3), grad=Grad()))
        return Readings()

    monkeypatch.setattr(arbitration, "readings", asked)
    for output, said in (("o", True), ("dq", False)):
        trials = Trials(subject, 300, kept=0.4)
        case = parse_case(CAUSAL) if said else dataclasses.replace(parse_case(CAUSAL), grad=Grad())
        explained = dataclasses.replace(
            claim("causal-ignored", "causal != no"), scope=frozenset({"o", "lse", "dq", "dk"})
        )
        given = answer(explained)
        ruling = Hearing(trials, output).ruling(trials.scene(case), given)
        assert (ruling.answer is not None) == said
        assert given.evidence.endswith("wrong in another way") == said


def test_of_two_that_say_it_equally_well_the_one_without_conditions_is_the_title(monkeypatch):
    given = answer(claim("causal-ignored", "causal != no"))
    ruling, start = ruled(monkeypatch, planted(**IGNORED), given, EXACT)
    found = ruled_diagnosis(ruling, start, "", "")

    assert ruling.leads
    assert (found.name, found.reading) == ("", "O sees keys behind the diagonal.")
    assert found.sentence.startswith(
        "O sees keys behind the diagonal. Every case tried is consistent with this as well: the causal mask"
    )


def test_a_name_with_conditions_about_gradients_alone_stays_the_title(monkeypatch):
    first = claim("causal-ignored", "causal != no")
    for scope, leads in ((frozenset({"dk", "dv"}), False), (frozenset({"o", "dk"}), True)):
        first.scope = scope
        ruling, _ = ruled(monkeypatch, planted(**IGNORED), answer(first), EXACT)

        assert ruling.leads is leads


def test_a_reading_about_which_right_cases_were_not_asked_is_a_line_beside_the_name(monkeypatch):
    given = answer(claim("causal-ignored", "causal != no"))
    ruling, start = ruled(monkeypatch, planted(**IGNORED), given, EXACT._replace(both=False))
    found = ruled_diagnosis(ruling, start, "", "")

    assert found.name == "causal-ignored"
    assert found.sentence.endswith("Read off the kernel: O sees keys behind the diagonal.")
    assert "; and 1 of the cases read" in found.evidence


def test_a_reading_that_leaves_open_what_is_wrong_takes_no_name_away(monkeypatch):
    ruling, _ = ruled(monkeypatch, planted(**IGNORED), answer(claim("causal-ignored"), open=True), COARSE)

    assert ruling.answer is not None
    assert not ruling.read.sentences


def test_a_reading_of_a_gradient_is_no_word_about_a_wrong_forward(monkeypatch):
    given = answer(claim("causal-ignored", "causal != no"))
    ruling, _ = ruled(
        monkeypatch, planted(**IGNORED), given, EXACT._replace(sentences=("DV and dK miss the first key",))
    )

    assert not ruling.leads
    assert not ruling.read.sentences


def test_names_about_different_parts_that_no_case_tells_apart_are_said_as_such():
    scene = Trials(planted(**IGNORED), 300).scene(parse_case(CAUSAL))
    apart = named_diagnosis(answer(claim("causal-ignored"), claim("last-key-missing")), scene, "", "")
    alike = named_diagnosis(answer(claim("causal-ignored"), claim("causal-one-key-more")), scene, "", "")

    assert apart.sentence.startswith("One of these, which no case tried tells apart: the causal mask is ignored; or ")
    assert alike.sentence.startswith("The causal mask is ignored. Every case tried is consistent with this as well: ")


@pytest.mark.thorough
def test_the_sign_bit_of_a_word_is_said_before_the_last_key_of_tiles():
    def signs_lost(self, problem, bits):
        return Plain.pattern(self, problem, bits) & (torch.arange(bits.shape[-1]) % 32 != 31)

    found = named(planted(pattern=signs_lost), "fv1 seq_k=32 dim_qk=8 dim_v=8 dtype=fp32 bitmap=256,0 backward=no")

    assert found.reading.startswith("O misses every key in places 31, 63, 95, ...")
    assert found.sentence.startswith(found.reading)


@pytest.mark.thorough
def test_a_condition_may_be_a_side_of_the_window():
    ignored = when(lambda p: p.window is not None and p.window[1] is not None, **IGNORED)
    found = named(ignored, FORWARD + "causal=top-left window=*,2")

    assert (found.name, found.conditions) == ("causal-ignored", ("window_right_given == yes",))
    assert "only with a right side of the window" in found.sentence


class Unwritten(Plain):
    """The second sequence holds what lay in its memory."""

    def output(self, o, z, v, lse):
        return torch.cat([o[:1], torch.full_like(o[1:], torch.nan)])


class Watched(Trials):
    """Runs whose loads are watched, of which one reads memory that nobody wrote."""

    def scene(self, case):
        found = super().scene(case)
        load = SimpleNamespace(kind="uninitialised", argument="lse_ptr", kernel="merge", place="merge.py:7")
        watch = SimpleNamespace(reports={"first": load}, launches=1)
        return found and dataclasses.replace(found, execution=dataclasses.replace(found.execution, watch=watch))


TWO = "fv1 batch=2 seq_q=3 seq_k=5 dim_qk=8 dim_v=8 dtype=fp32 backward=no"


@pytest.mark.parametrize(
    ("watching", "subject", "said"),
    [
        (Watched, Unwritten(), "elements of lse_ptr (merge, merge.py:7) are read that nobody wrote"),
        (Trials, Unwritten(), ""),
        (Watched, planted(keys=lambda s, n: n - 1), ""),
    ],
)
def test_what_is_read_before_it_is_written_is_said_where_every_wrong_element_is_nan(watching, subject, said):
    trials = watching(subject, 300)
    words, cases = unwritten_read(trials, trials.scene(parse_case(TWO)))

    assert words.startswith(said)
    assert bool(words) == bool(said) == (cases > 1)


class WatchedWhereWrong(Watched):
    """The load is seen on failing cases alone."""

    def scene(self, case):
        found = super().scene(case)
        if found is None or found.failures:
            return found
        watch = SimpleNamespace(reports={}, launches=1)
        return dataclasses.replace(found, execution=dataclasses.replace(found.execution, watch=watch))


@pytest.mark.parametrize(("watching", "said"), [(WatchedWhereWrong, True), (Watched, False), (Trials, False)])
def test_an_access_that_every_failing_case_shows_and_no_right_one_is_said(watching, said):
    trials = watching(planted(keys=lambda s, n: min(n, 6)), 300)
    cases = [parse_case(TWO.replace("seq_k=5", f"seq_k={keys}")) for keys in (4, 5, 6, 7, 8, 9, 10)]
    trials.scenes = {case: trials.scene(case) for case in cases}

    assert watched_always(trials).endswith("are read that nobody wrote") == said
