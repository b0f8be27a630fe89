"""A failure that only padding shows on the minimal case: of what is read elsewhere it is no matter of padding."""

import dataclasses

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.diagnose import diagnose
from tests.diagnosis.mask_defects import FORWARD
from tests.diagnosis.planted import Plain
from tests.diagnosis.test_diagnosis import first_failure

CASE = FORWARD + "batch=2 klen=3,7 regime=zeros padding=nan"


class FirstKeys(Plain):
    """Every sequence reads the keys of the first one, past the length of that too."""

    def forward(self, problem):
        first = problem.k[:1].expand_as(problem.k)
        found = super().forward(dataclasses.replace(problem, k=first))
        lengths = problem.key_lengths if problem.key_lengths is not None else torch.full((len(first),), first.shape[2])
        inside = torch.arange(first.shape[2]) < lengths.view(-1, 1)
        lost = (inside & ~torch.isfinite(first).all(-1).all(1)).any(-1)
        found.o[lost] = torch.nan
        return found


class Multiplied(Plain):
    """Padding of K is multiplied by 0."""

    def forward(self, problem):
        found = super().forward(problem)
        return dataclasses.replace(found, o=found.o + 0.0 * problem.k.sum((1, 2, 3)).view(-1, 1, 1, 1))


def named(subject):
    case = parse_case(CASE)
    verdict = first_failure(subject, case, check="nonfinite")
    return diagnose(subject, case, verdict, seconds=120.0)


@pytest.mark.slow
@pytest.mark.thorough
def test_keys_of_the_first_sequence_are_not_taken_for_padding():
    assert named(FirstKeys()).name == "batch-first"


def test_padding_that_is_multiplied_by_0_keeps_its_name():
    assert named(Multiplied()).name == "padding-of-k-multiplied"
