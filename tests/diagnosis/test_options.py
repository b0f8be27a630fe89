"""Values of options: cases that vary them, conditions on them, cases with usual ones, and names that they refute or condition."""

from dataclasses import replace

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis import observation
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Claim
from flashverify.diagnosis.conditions import in_words, parse
from flashverify.diagnosis.features import case_features
from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.learning import rules
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.places import region_of
from flashverify.diagnosis.readings import readings
from flashverify.diagnosis.related_cases import variants
from flashverify.diagnosis.rough_gradients import has_far_gradients
from flashverify.diagnosis.screening import is_far_off
from flashverify.diagnosis.settings import other_settings, usual_settings
from flashverify.diagnosis.starting import smaller_with_a_launch, with_usual_settings
from flashverify.diagnosis.trials import Trials, work
from flashverify.truth import Truth
from tests.diagnosis.mask_defects import FORWARD
from tests.diagnosis.option_defects import of_pages
from tests.diagnosis.packed_and_paged import paged
from tests.diagnosis.planted import Plain, planted
from tests.diagnosis.test_diagnosis import named
from tests.fast_tier import thorough_in

BACKWARD = FORWARD.replace("backward=no ", "")

PAGED = FORWARD.replace("seq_q=5 seq_k=7", "seq_q=1 seq_k=70") + "batch=2 page_size=16 "


def zeros_of_page(number):
    """Keys of one page of the pool are read as zeros."""
    return paged(lambda table, b, key, size: -1 if int(table[b, key // size]) == number else table[b, key // size])


@pytest.mark.parametrize(
    ("more", "field", "expected"),
    [
        ("softcap=30", lambda case: case.logits.softcap, {0.5, 50.0, 2.0, 8.0}),
        ("scale=0.5", lambda case: case.scale, {None, 0.0, -0.5, 1.0}),
        ("klen=3", lambda case: case.mask.key_lengths, {(0,), (7,), (6,)}),
        ("relative_bias=4,3", lambda case: case.logits.relative_bias, {(4, 3, True), (8, 7, False), (8, 20, True)}),
        ("tree=-1,0,0,1,1", lambda case: case.mask.tree, {(-1, 0, 1, 2, 3), (-1,) * 5, (-1, 0, 0, 1, 1)}),
    ],
)
def test_options_are_given_other_values(more, field, expected):
    case = parse_case(FORWARD + more)
    found = list(other_settings(Plain.supports, case))
    assert expected - {field(case)} <= {field(other) for other in found}
    assert case not in found
    assert len(set(found)) == len(found)


def test_pages_of_a_single_key_are_made_usual_ones_with_full_and_other_last_pages():
    supports = zeros_of_page(0).supports
    found = list(usual_settings(supports, parse_case(PAGED.replace("page_size=16", "page_size=1"))))
    assert {case.storage.page_size for case in found} == {16}
    assert {case.seq_k % 16 == 0 for case in found} == {True, False}
    assert not list(usual_settings(supports, parse_case(PAGED)))


@pytest.mark.parametrize(
    ("text", "more", "words"),
    [
        ("scale_sign == zero", "scale=0", "only with a scale of 0"),
        ("scale_sign == negative", "scale=-0.5", "only with a negative scale"),
        ("cap >= 8", "softcap=30", "only where the cap >= 8"),
        ("least_keys == 0", "klen=0", "only where Sk of the shortest sequence = 0"),
        ("group_power == no", "heads_q=3", "only where the heads of a group are no power of 2"),
        ("room_filled != yes", "klen=3", "only where a sequence does not fill the room"),
        ("longest_prefix > seq_q", "causal=top-left prefix=6", "only where the longest prefix > Sq"),
    ],
)
def test_conditions_on_values_of_options(text, more, words):
    case = parse_case(FORWARD + more)
    assert parse(text).of(case_features(case))
    assert not parse(text).of(case_features(parse_case(FORWARD)))
    assert in_words([parse(text)]) == words
    assert str(parse(text)) == text


def test_a_scale_of_zero_is_the_condition_rather_than_a_given_scale():
    def of(*texts):
        return [case_features(parse_case(FORWARD + text)) for text in texts]

    found = rules(of("scale=0", "scale=0 causal=top-left"), of("", "scale=0.5", "scale=-1", "causal=top-left"))
    assert tuple(map(str, found[0].conditions)) == ("scale_sign == zero",)


def test_keys_of_a_page_are_a_place():
    scene = look(zeros_of_page(-1)(), parse_case(PAGED))
    table = scene.problem.pages.table.long()
    j = torch.arange(70)
    for text, number in (("page == 0", 0), ("page == last", len(scene.problem.pages.k) - 1)):
        assert torch.equal(region_of(scene, (parse(text),)).pairs[:, 0, 0], table[:, j // 16] == number)
    assert region_of(scene, (parse("last_page == full"),)).nothing
    assert region_of(look(Plain(), parse_case(FORWARD)), (parse("page == 0"),)).nothing


@pytest.mark.slow
@pytest.mark.thorough
def test_keys_of_page_zero_that_are_read_as_zeros_are_named_with_their_page():
    found = named(zeros_of_page(0)(), PAGED.replace("backward=no", "backward=no seed=3"))
    assert (found.name, found.conditions) == ("keys-as-zeros", ("page == 0",))


@pytest.mark.slow
@pytest.mark.thorough
def test_a_cap_that_is_left_out_where_it_is_large_is_named_with_its_size():
    subject = planted(cap=lambda _self, z, cap: z if cap >= 8 else cap * torch.tanh(z / cap))
    found = named(subject, FORWARD + "softcap=30")
    assert found.name == "softcap-missing"
    assert [text.split()[:2] for text in found.conditions] == [["cap", ">="]]


def test_a_case_with_usual_pages_tells_a_page_from_a_key():
    subject = of_pages(lambda n, size: torch.where(n % size == 0, n - size, n))()
    subject.supports = subject.supports.__class__(**{**vars_of(subject.supports), "page_sizes": (1, 16)})
    trials = Trials(subject, 300)
    found = with_usual_settings(trials, trials.scene(parse_case(PAGED.replace("page_size=16", "page_size=1"))))
    assert found is not None
    assert found.case.storage.page_size == 16
    assert found.case.seq_k % 16 == 0


def vars_of(record):
    return {field: getattr(record, field) for field in record.__dataclass_fields__}


def test_no_small_case_is_looked_for_where_a_case_is_small():
    subject = planted(sinks=lambda _self, sinks: 2 * sinks)
    trials = Trials(subject, 300)
    assert smaller_with_a_launch(trials, trials.scene(parse_case(FORWARD + "sink=yes"))) is None


def test_a_small_case_with_a_launch_takes_the_place_of_a_large_one():
    """The kernel splits the keys of large cases by itself, and of others where a launch asks for it."""

    def scale(_self, problem):
        case = problem.case
        split = work(case) >= 12_000 or dict(case.launch).get("splits", 1) > 1
        return problem.scale * (2 if split else 1)

    subject = planted(scale=scale)
    subject.supports = replace(subject.supports, launch=(("splits", (1, 2)),))
    trials = Trials(subject, 300)

    found = smaller_with_a_launch(trials, trials.scene(parse_case("fv1 seq_q=60 seq_k=300 dtype=fp32")))
    assert found is not None
    assert found.case.launch == (("splits", 2),)
    assert work(found.case) < 2_000


def test_variants_keep_sequences_that_are_empty():
    found = [case.mask.key_lengths for case in variants(Plain(), parse_case(FORWARD + "batch=2 klen=0,5"))]
    assert any(lengths and len(lengths) > 2 and 0 in lengths and max(lengths) > 5 for lengths in found)


def test_a_far_wrong_problem_is_refuted_without_bounds_and_a_right_one_never():
    scene = look(Plain(), parse_case(FORWARD + "seed=2"))
    names = frozenset({"o", "lse"})
    assert not is_far_off(scene, scene.truth, names)
    tripled = observation.dataclasses.replace(scene.inputs, scale=3 * scene.inputs.scale)
    assert is_far_off(scene, Truth(tripled, scene.case.dtype, scene.form), names)


def test_far_gradients_are_refuted_without_bounds_and_right_ones_never():
    scene = look(Plain(), parse_case(BACKWARD + "seed=2"))
    names = frozenset({"dq", "dk", "dv"})
    same = Alternative(inputs=observation.dataclasses.replace(scene.inputs))
    tripled = Alternative(inputs=observation.dataclasses.replace(scene.inputs, scale=3 * scene.inputs.scale))
    later = Alternative(given=lambda o, lse: (o, lse + 1.0))
    halved = Alternative(inputs=same.inputs, finish=lambda x: x | {"dk": x["dk"].times(0.5)})

    assert not has_far_gradients(scene, same, names)
    assert all(has_far_gradients(scene, each, names) for each in (tripled, later, halved))
    assert not has_far_gradients(scene, halved, names - {"dk"})


def test_what_a_wrong_problem_leaves_as_it_is_stays_wrong_without_bounds():
    scene = look(
        planted(scale=lambda _self, problem: 1.001 * problem.case.softmax_scale),
        parse_case(BACKWARD + "sink=yes seed=2"),
    )
    assert {"lse", "dq"} <= scene.failures.keys()
    replaced = observation.dataclasses.replace
    zeros = replaced(scene.inputs, v=torch.zeros_like(scene.inputs.v))
    louder = Alternative(inputs=replaced(scene.inputs, sink=scene.inputs.sink + 1.0))

    assert is_far_off(scene, Truth(zeros, scene.case.dtype, scene.form), frozenset({"lse"}))
    assert has_far_gradients(scene, louder, frozenset({"dq"}))


def test_what_leaves_the_gradient_through_the_lse_out_may_round_as_it_does():
    scene = look(Plain(), parse_case(BACKWARD + "sink=yes dlse=yes seed=2"))
    without = Alternative(inputs=observation.dataclasses.replace(scene.inputs, dlse=None))
    expected = scene.expect(without, frozenset({"dsink"}))["dsink"]

    taken_away = expected.value + 0.5 * scene.right["dsink"].total
    wrong = observation.dataclasses.replace(scene, outputs=scene.outputs | {"dsink": taken_away}, known={}, memo={})
    assert bool((expected.total >= scene.right["dsink"].total).all())
    assert wrong.agrees(without, frozenset({"dsink"}))


MORE = ("batch=2 klen=7,4", "softcap=2 bias=full", "causal=top-left", "sink=yes alibi=yes")


@pytest.mark.parametrize("more", thorough_in(MORE[2:], MORE))
def test_answers_are_the_same_without_a_screening(more, monkeypatch):
    of_gradients = planted(backward_see=lambda _self, see: see.roll(1, -1) | see)
    for subject, text in ((planted(scale=lambda _self, problem: 1.0), FORWARD), (of_gradients, BACKWARD)):
        screened, plain = (look(subject, parse_case(text + more)) for _ in range(2))
        assert screened.failures
        with_it = [Claim(each).answer(screened) for each in SEMANTICS[::7]]
        with monkeypatch.context() as without:
            without.setattr(observation, "is_far_off", lambda *_: False)
            without.setattr(observation, "has_far_gradients", lambda *_: False)
            assert [Claim(each).answer(plain) for each in SEMANTICS[::7]] == with_it


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("more", "methods", "sentence"),
    [
        ("bias=full", {"add_bias": lambda s, z, b: z + b.clamp(max=0)}, "Positive entries of the bias count as 0"),
        pytest.param(
            "bias=full",
            {"add_bias": lambda s, z, b: z + b.clamp(max=1)},
            "The bias is clamped: at most 1",
            marks=pytest.mark.thorough,
        ),
        (
            "window=2,0",
            {"forward": lambda s, p: zeros_before_the_last_window(s, p)},
            "K and V are read as zeros, which take part in the softmax with a product of 0",
        ),
    ],
)
def test_terms_by_their_values_and_keys_that_were_not_loaded_are_read(more, methods, sentence):
    trials = Trials(planted(**methods), 300)
    scene = trials.scene(parse_case(FORWARD.replace("seq_q=5 seq_k=7", "seq_q=5 seq_k=20") + more))
    assert scene.failures, "the planted defect does not show"
    found = readings(trials, scene, "o").sentences
    assert any(words.startswith(sentence) for words in found), found


def zeros_before_the_last_window(self, problem):
    """Keys before the window of the last row are not loaded, though earlier rows see them."""
    window, case = problem.window, problem.case
    if not window or window[0] is None:
        return Plain.forward(self, problem)
    loaded = (torch.arange(case.seq_k) >= case.seq_q - 1 - window[0]).view(1, 1, -1, 1)
    changed = observation.dataclasses.replace(problem, k=problem.k * loaded, v=problem.v * loaded)
    return Plain.forward(self, changed)


def test_the_lse_of_some_rows_is_said_with_these_rows():
    subject = planted(lse=lambda _self, lse, _without: torch.where(lse < 0, 2 * lse, lse))
    trials = Trials(subject, 300)
    scene = next(
        s
        for n in range(9)
        if (s := trials.scene(parse_case(f"{FORWARD.replace('seq_k=7', 'seq_k=1')}scale=4 seed={n}"))).failures
    )
    found = readings(trials, scene, "lse").sentences
    assert found[0].startswith("The LSE is 2 times what it should be in rows whose")
    assert found[0].endswith("is negative; that of the others is as declared")
