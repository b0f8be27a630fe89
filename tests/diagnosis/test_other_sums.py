"""Row sums of another row, head or sequence, and of parts that are added without their factors, are read off the weights."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.readings import readings
from flashverify.diagnosis.trials import Trials
from flashverify.numerics import Form
from tests.diagnosis.planted import Plain

CASE = "fv1 heads_q=4 heads_kv=2 seq_q=5 seq_k=9 dim_qk=16 dim_v=16 dtype=fp32 backward=no"


class Divided(Plain):
    """O is divided by another row sum, `wrong(z)`, a logarithm."""

    def output(self, o, z, v, lse):
        wrong = self.wrong(z)
        factor = torch.where(torch.isfinite(lse), lse - wrong, 0.0).exp()
        return o * factor.unsqueeze(-1)


class FirstOfItsPair(Divided):
    def wrong(self, z):
        top = z.amax(-1)
        pair = torch.arange(z.shape[1]) // 2 * 2
        return (z.logsumexp(-1) - top)[:, pair] + top


class TwoParts(Divided):
    def form(self, case):
        return Form(n_splits=2)

    def wrong(self, z):
        half = z.shape[-1] // 2
        parts = [x for x in (z[..., :half], z[..., half:]) if x.shape[-1]]
        shares = [x.logsumexp(-1) - x.amax(-1) for x in parts]
        return z.amax(-1) + torch.stack(shares).logsumexp(0)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (FirstOfItsPair, "is that of the first query head of its pair, relative to the largest logit of each"),
        (TwoParts, "adds the row sums of the splits (equal pieces) without their factors"),
    ],
)
def test_the_row_sum_of_other_places_is_read(subject, words):
    trials = Trials(subject(), 300)
    found = readings(trials, trials.scene(parse_case(CASE)), "o")

    assert found.sentences[0].startswith(f"The row sum that O is divided by {words}")
