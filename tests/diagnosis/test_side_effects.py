"""What a defect does beside what its name says does not refute the name: memory of others, terms that cancel, numbers that vanish."""

import dataclasses

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.hypotheses.packed_counts import PACKED_COUNTS
from flashverify.diagnosis.kin import one_of_a_family
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.telling_cases import telling
from flashverify.diagnosis.trials import work
from tests.diagnosis.gradient_defects import at_end, lse, planted_gradient
from tests.diagnosis.mask_defects import FORWARD
from tests.diagnosis.packed_and_paged import packed
from tests.diagnosis.planted import LOG2E, Plain, planted
from tests.diagnosis.test_diagnosis_selection import scene

PACKED = "fv1 heads_q=3 heads_kv=3 seq_q=9 seq_k=21 dim_qk=8 dim_v=8 dtype=fp32 packed=0,2,9/0,6,21 backward=no"

VANISHING = "fv1 seq_q=41 seq_k=41 dim_qk=8 dim_v=8 dtype=fp32 regime=negative seed=6"


def claim(name):
    return Claim(next(each for each in SEMANTICS if each.name == name))


class StoresOverTheNextHead(packed(keys=lambda first, count, rows: (first, count + 1))):
    """The row behind the last one of a head is stored over the first one of the next; the last sequence reads behind the buffer."""

    def forward(self, problem):
        found = super().forward(problem)
        o, lse = found.o.clone(), found.lse.clone()
        last = problem.case.mask.packed.cu_q[-2]
        for x in (o, lse):
            x[:, 1:, 0] = 7.0
            x[:, :, last:] = 5.0
        return dataclasses.replace(found, o=o, lse=lse)


def test_rows_that_other_programs_store_over_are_no_other_mistake():
    subject = StoresOverTheNextHead()

    assert claim("packed-one-key-more").answer(look(subject, parse_case(PACKED))) is Answer.CLEAR


@pytest.mark.parametrize(("name", "counts"), [("packed-one-key-more", (3, 8)), ("packed-longest-for-all", (7, 7))])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_keys_sum_as_many_rows_as_their_sequence_is_taken_to_have(name, counts, causal):
    found, problem = scene(f"{PACKED.replace(' backward=no', '')}{' causal=bottom-right' if causal else ''}")
    found.problem = problem
    wrong = next(each for each in PACKED_COUNTS if each.name == name)
    keys = (7, 16) if name == "packed-one-key-more" else (15, 15)

    of_keys = list(wrong.build(found))[-1]

    for key in range(21):
        mine = int(key >= 6)
        first = (0, 2)[mine]
        number = key - (0, 6)[mine]
        shift = keys[mine] - counts[mine] if causal else 10**6
        expected = [0 <= row - first < counts[mine] and number <= row - first + shift for row in range(9)]
        assert of_keys.inputs.visible[0, 0, :, key].tolist() == expected
    assert of_keys.outputs == ("dk", "dv")


def test_a_cap_behind_a_large_term_is_not_screened_out():
    class Cap(Plain):
        def cap(self, raw, cap):
            self.limit = cap
            return raw

        def add_bias(self, z, bias):
            return self.limit * torch.tanh((z + bias) / self.limit)

    seen = look(Cap(), parse_case(FORWARD + "softcap=50 bias=shared regime=large seed=18"))

    assert seen.failures
    assert claim("softcap-after-bias").answer(seen) in (Answer.CLEAR, Answer.EXPLAINED)


def test_weights_that_vanish_are_not_screened_out():
    normal = at_end("dq", "dk", "dv", by=lambda x, _: x * (x.abs() >= 2.0**-126))
    wrong = planted_gradient(lse(lambda s: s.lse / LOG2E) | normal)

    seen = look(wrong, parse_case(VANISHING))

    assert not any(seen.outputs[name].any() for name in ("dq", "dk", "dv"))
    assert seen.failures
    assert claim("backward-lse-base").answer(seen) in (Answer.CLEAR, Answer.EXPLAINED)


def test_a_wrong_backward_beside_a_right_lse_is_no_lse_of_another_base():
    wrong = planted_gradient(lse(lambda s: s.lse / LOG2E))

    seen = look(wrong, parse_case(FORWARD.replace("backward=no", "")))

    assert claim("backward-lse-base").answer(seen) is Answer.CLEAR
    assert claim("lse-base-2").answer(seen) is Answer.OTHERWISE


@pytest.mark.parametrize("window", ["2,*", "*,1", "1,1"])
def test_a_window_that_is_ignored_is_so_on_whichever_sides_it_has(window):
    subject = planted(window=lambda _self, i, j, left, right: (i >= 0) & (j >= 0))

    assert claim("window-ignored").answer(look(subject, parse_case(f"{FORWARD}window={window}"))) is Answer.CLEAR


def test_of_names_of_one_mistake_the_usual_one_is_said():
    claims = [claim(name) for name in ("query-lengths-ignored", "weights-unmasked", "padded-rows-not-cleared")]

    assert [each.semantics.name for each in one_of_a_family(claims)] == ["padded-rows-not-cleared", "weights-unmasked"]


def test_small_cases_that_tell_names_apart_come_first():
    cases = list(telling(Plain(), parse_case(FORWARD + "qlen=3")))

    assert list(map(work, cases)) == sorted(map(work, cases))
    assert any(
        case.mask.key_lengths and case.mask.key_lengths < case.mask.query_lengths
        for case in cases
        if case.mask.query_lengths
    )
