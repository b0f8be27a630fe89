"""Findings of several shards: one cause is one finding, two causes stay two, in whatever order they come."""

from itertools import permutations

import msgspec
import pytest

from flashverify.campaign.merging.findings import merge_findings
from flashverify.judge.record import Confirmation, Diagnosis, Folded
from flashverify.judge.verdict import Key
from tests.report.synthetic import finding

FP16, FP32 = "fp16", "fp32"


def key(output, dtype=FP16):
    return Key("kernel", "accuracy", "bound", output, dtype)


def named(output, name, *, dtype=FP16, folded=(), **changes):
    """A finding with a diagnosis; `folded` are outputs."""
    members = tuple(
        Folded(key(each, dtype), "fv1", f"{each} is off", "its minimal case shows it too", 2) for each in folded
    )
    diagnosis = Diagnosis(name, f"It is {name}.") if name is not None else None
    return finding(output=output, key=key(output, dtype), diagnosis=diagnosis, folded=members, **changes)


def test_a_bucket_of_several_shards_is_one_finding_with_all_its_cases():
    small = named("o", "mask", case="fv1 seq_k=3", first="fv1 seq_k=90", seconds=50.0, count=5, folded=("lse",))
    early = named("o", "mask", case="fv1 seq_k=30", first="fv1 seq_k=70", seconds=2.0, count=7, folded=("lse", "dq"))

    (merged,) = merge_findings([[small], [early]])

    assert (merged.case, merged.first, merged.seconds, merged.count) == ("fv1 seq_k=3", "fv1 seq_k=70", 2.0, 12)
    assert {each.key.output: each.count for each in merged.folded} == {"lse": 4, "dq": 2}


def test_a_verified_finding_stands_for_one_that_was_not():
    waiting = named("o", None, case="fv1 seq_k=2", confirmation=Confirmation(), not_minimal="it was not minimised yet")
    verified = named("o", "mask", case="fv1 seq_k=9")

    (merged,) = merge_findings([[waiting], [verified]])

    assert (merged.case, merged.diagnosis.name, merged.not_minimal) == ("fv1 seq_k=9", "mask", "")


@pytest.mark.parametrize(
    ("first", "second", "kept", "why"),
    [
        (("o", "mask"), ("dq", "mask"), {"o"}, "the same diagnosis"),
        (("o", "mask"), ("dq", "scale"), {"o", "dq"}, ""),
        (("o", "", ("dq",)), ("dq", ""), {"o"}, "another shard found them to have one cause"),
        (("o", "", ("dq",)), ("dq", "", ("o",)), {"o"}, "another shard found them to have one cause"),
        (("o", "mask", ("dq",)), ("dq", "scale"), {"o", "dq"}, ""),
        (("o", ""), ("dq", ""), {"o", "dq"}, ""),
    ],
)
def test_findings_of_different_buckets(first, second, kept, why):
    def of(output, name, folded=()):
        return named(output, name, folded=folded, case="fv1 seq_k=2" if output == "o" else "fv1 seq_k=5")

    for shards in permutations([[of(*first)], [of(*second)]]):
        merged = merge_findings(shards)

        assert {record.key.output for record in merged} == kept
        assert {each.why for record in merged for each in record.folded if each.key.output == "dq"} == {why} - {""}
        owned = [record.key for record in merged] + [each.key for record in merged for each in record.folded]
        assert len(owned) == len(set(owned)), "a bucket with two owners would be lost when the run is resumed"


def test_two_defects_that_look_alike_stay_two_findings():
    both = merge_findings([[named("o", "mask", case="fv1 seq_k=2")], [named("o", "scale", case="fv1 seq_k=5")]])

    assert {(record.key.cause, record.diagnosis.name) for record in both} == {(0, "mask"), (1, "scale")}


def test_conditions_alone_tell_no_two_defects_of_one_bucket_apart():
    plain = named("o", "mask")
    tied = msgspec.structs.replace(plain, diagnosis=Diagnosis("mask", "It is mask.", conditions=("seq_q > seq_k",)))

    assert len(merge_findings([[plain], [tied]])) == 1


def test_the_order_of_shards_and_findings_changes_nothing():
    records = [
        named("o", "mask", case="fv1 seq_k=2"),
        named("dq", "mask", case="fv1 seq_k=3", folded=("dk",)),
        named("dk", "scale", case="fv1 seq_k=4"),
        named("lse", "", case="fv1 seq_k=5", folded=("dv",)),
    ]

    found = {
        msgspec.json.encode(sorted(merge_findings([order]), key=lambda r: r.key)) for order in permutations(records)
    }

    assert len(found) == 1
