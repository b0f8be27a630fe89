"""Which part of a campaign a shard is: its name, and the cases and batches that are its own."""

import pytest

from flashverify.campaign.supervisor.shard import Shard
from tests.campaign.notes import following, schedule


@pytest.mark.parametrize("of", [1, 2, 3, 7])
def test_every_case_and_every_batch_is_of_one_shard_and_each_shard_has_every_subject(of):
    every = [Shard(index, of) for index in range(1, of + 1)]

    assert sorted(case for shard in every for case in shard.share(tuple(range(20)))) == list(range(20))
    for number in range(60):
        assert [shard.has_batch(number, 2) for shard in every].count(True) == 1
    for shard in every:
        assert {number % 2 for number in range(60) if shard.has_batch(number, 2)} == {0, 1}


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/", "/2", "a/b", "1/10001", "-1/2", "1/2/3", "\u0661/2"])
def test_what_names_no_shard_is_refused(text):
    with pytest.raises(ValueError, match=r".*"):
        Shard.parse(text)


def test_a_shard_knows_how_many_cases_are_its_own(tmp_path):
    totals = []
    for index in (1, 2, 3):
        found = schedule(tmp_path, max_cases=50, corpus=True, batch=8, shard=Shard(index, 3))
        for spec, cases in (("a", tuple("12345")), ("b", tuple("67"))):
            following(found)
            found.listed(spec, cases, corpus=True)
        totals.append(found.total)

    assert sum(totals) == 50
    assert totals == [2 + 1 + 16, 2 + 1 + 16, 1 + 11], (
        "7 listed cases, and batches of 8, 8, 8, 8, 8 and 3 in rounds of two"
    )
