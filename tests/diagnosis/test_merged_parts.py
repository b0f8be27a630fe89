"""Partial results of the keys that are merged wrongly: with the weights of each other, or by LSEs of another base."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.observe import look
from flashverify.numerics import Form
from tests.diagnosis.planted import LOG2E, Plain

CASE = "fv1 heads_q=2 seq_q=6 seq_k=40 dim_qk=8 dim_v=8 dtype=fp32 backward=no"


class Merged(Plain):
    """O and the LSE of parts of the keys, which `merge` makes one of; a ring has a part for each of two devices, dealt out in turn."""

    ring = False

    def form(self, case):
        return Form() if self.ring else Form(n_splits=2)

    def parts(self, z):
        rows, keys = torch.arange(z.shape[-2])[:, None], torch.arange(z.shape[-1])
        return (rows - keys) % 2 if self.ring else (keys >= z.shape[-1] // 2).long().expand(z.shape[-2:])

    def output(self, o, z, v, lse):
        of = self.parts(z)
        logits = [z.masked_fill(of != n, -torch.inf) for n in (0, 1)]
        o, self.found = self.merge([torch.softmax(x, -1) @ v for x in logits], [x.logsumexp(-1) for x in logits])
        return o

    def lse(self, lse, without_sink):
        return self.found


class Exchanged(Merged):
    def merge(self, o, lse):
        whole = torch.logaddexp(*lse)
        first, second = ((x - whole).exp().unsqueeze(-1) for x in lse)
        return o[0] * second + o[1] * first, whole


class ExchangedInARing(Exchanged):
    ring = True


class InTheWrongBase(Merged):
    """LSEs of base 2 that are merged as natural ones."""

    brought = True

    def merge(self, o, lse):
        lse = [x * LOG2E for x in lse]
        whole = torch.logaddexp(*lse)
        first, second = ((x - whole).exp().unsqueeze(-1) for x in lse)
        top = torch.maximum(*lse) / LOG2E
        return o[0] * first + o[1] * second, whole / LOG2E if self.brought else top + whole - LOG2E * top


class WithAnLseThatIsNotBroughtToIt(InTheWrongBase):
    brought = False


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (Exchanged, "merge-weights-exchanged"),
        (ExchangedInARing, "merge-weights-exchanged"),
        (InTheWrongBase, "merge-in-wrong-base"),
        (WithAnLseThatIsNotBroughtToIt, "merge-in-wrong-base"),
    ],
)
def test_a_wrong_merge_has_one_name(subject, name):
    scenes = [look(subject(), parse_case(text)) for text in (CASE, CASE.replace("seq_k=40", "seq_k=57"))]
    merges = [each for each in SEMANTICS if each.name.startswith("merge-")]

    fits = {
        each.name
        for each in merges
        if all(Claim(each).answer(scene) in (Answer.CLEAR, Answer.EXPLAINED) for scene in scenes)
    }

    assert fits == {name}
