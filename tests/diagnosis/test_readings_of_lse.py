"""What a reading says of an LSE that is wrong beside a right O: of which rows and keys it is, or its parts are."""

import dataclasses

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.readings import readings
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.planted import Plain
from tests.fast_tier import fast_one_in

CASE = "fv1 heads_q=4 heads_kv=2 seq_q=37 seq_k=80 dim_qk=16 dim_v=16 dtype=fp32 backward=no "
INF = torch.inf


class OtherLse(Plain):
    """The LSE is a function of the logits, natural, hidden ones -inf, and of the right one."""

    def output(self, o, z, v, lse):
        self.z = z
        return o

    def forward(self, problem):
        found = super().forward(problem)
        return dataclasses.replace(found, lse=self.other(self.z, found.lse.double()).float())


def top_of(where):
    """The largest logit of some keys beside the row sum relative to that of all."""
    return lambda s, z, lse: lse - z.amax(-1) + z.masked_fill(~where(torch.arange(z.shape[-1])), -INF).amax(-1)


def last_tile_joined_late(s, z, lse):
    """What was summed before the last tile of 32 keys keeps its own maximum."""
    j, cut = torch.arange(z.shape[-1]), (z.shape[-1] - 1) // 32 * 32
    before, after = z.masked_fill(j >= cut, -INF), z.masked_fill(j < cut, -INF)
    own = torch.where((before > -INF).any(-1), before.logsumexp(-1) - before.amax(-1) + z.amax(-1), -INF)
    return torch.logaddexp(own, after.logsumexp(-1))


def of_rows(to):
    return lambda s, z, lse: lse[:, :, to(torch.arange(lse.shape[2]), lse.shape[2])]


def tiles_from_the_end(i, n):
    """Where the last tile is not whole, some of these rows do not exist; they have their own LSE."""
    other = ((n - 1) // 16 - i // 16) * 16 + i % 16
    return torch.where(other < n, other, i)


SAID = {
    "The LSE has the largest logit of the keys of the first tile of 16": top_of(lambda j: j < 16),
    "The LSE has the largest logit of the keys of every second tile of 32, from the first one on for": top_of(
        lambda j: j // 32 % 2 == 0
    ),
    "The LSE is that of a row sum in which the keys before the last tile of 32 that a row sees count": (
        last_tile_joined_late
    ),
    "The LSE has the largest logit of the next row beside": lambda s, z, lse: (
        lse - z.amax(-1) + z.amax(-1)[:, :, (torch.arange(z.shape[2]) + 1).clamp(max=z.shape[2] - 1)]
    ),
    "Every wrong element of lse holds the exact value of the row at the same place of its tile of 16, tiles counted": (
        of_rows(tiles_from_the_end)
    ),
    "Every wrong element of lse holds the exact value of row i + 8, the first ones after the last": of_rows(
        lambda i, n: (i + 8) % n
    ),
    "Every wrong element of lse holds the exact value of the head that the order (member, kv head) gives": (
        lambda s, z, lse: lse.view(lse.shape[0], 2, -1, lse.shape[2]).transpose(1, 2).reshape(lse.shape)
    ),
}


def read(other, text=CASE):
    subject = type("Other", (OtherLse,), {"other": other})()
    trials = Trials(subject, 300)
    scene = trials.scene(parse_case(text))
    assert scene.failures.keys() == {"lse"}
    return readings(trials, scene, "lse").sentences


@pytest.mark.one_in(3)
@pytest.mark.parametrize("words", fast_one_in(2, SAID))
def test_of_which_keys_and_rows_an_lse_is_is_said(words):
    found = read(SAID[words])

    assert found
    assert found[0].startswith(words), found


def test_an_lse_that_is_read_where_heads_stand_by_member_is_told_from_one_that_is_written_so():
    """With as many kv heads as members of a group the two orders are one."""
    found = read(
        lambda s, z, lse: lse.view(lse.shape[0], -1, 2, lse.shape[2]).transpose(1, 2).reshape(lse.shape),
        CASE.replace("heads_q=4", "heads_q=6"),
    )

    assert any("the order (kv head, member) gives, read where heads stand by (member, kv head)" in x for x in found)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "other",
    [
        pytest.param(
            lambda s, z, lse: lse + torch.arange(lse.shape[2]).double().sin(),
            id="a number of each row",
            marks=[pytest.mark.slow, pytest.mark.thorough],
        ),
        pytest.param(lambda s, z, lse: 0.5 * (lse + lse.flip(2)), id="a mean of two rows"),
    ],
)
def test_an_lse_of_no_other_keys_or_rows_gets_no_such_words(other):
    found = read(other)

    assert not any("largest logit" in each or "exact value" in each or "relative to" in each for each in found), found
