"""Two findings with names of one mistake are one, and keep the name that says more."""

import msgspec
import pytest

from flashverify.campaign.causes.diagnoses import agreed, alike
from flashverify.diagnosis.families import canonical
from flashverify.judge.record import Diagnosis, FindingRecord
from flashverify.judge.verdict import Key, Status, Verdict

KEY = Key("k", "accuracy", "bound", "o", "fp16")
OTHER = Key("k", "accuracy", "bound", "lse", "fp32")


def known(name, *also, conditions=(), key=KEY):
    verdict = Verdict(check=key.check, status=Status.FAIL)
    diagnosis = Diagnosis(name, f"{name}.", also=also, conditions=conditions, place="row 1")
    return FindingRecord(key, "fv1", "fv1", verdict, "cpu", "k", diagnosis=diagnosis)


@pytest.mark.parametrize("check", ["accuracy", "nonfinite", "padding", "counting", "relations"])
def test_the_same_name_is_the_same_defect_in_every_check_that_asks_about_values(check):
    key = Key("k", check, "e", "o", "fp32")
    found = known("scale-missing")

    assert alike(key, Diagnosis("scale-missing"), [found]) is found
    assert alike(key, Diagnosis("scale-squared"), [found]) is None
    assert alike(key, Diagnosis("scale-missing", conditions=("dim_qk == 64",)), [found]) is None
    assert alike(key, Diagnosis(), [known("")]) is None


def test_a_check_that_compares_no_values_has_no_diagnosis_to_share():
    race, named = Key("k", "sanitizer", "race", "o", "fp32"), Diagnosis("scale-missing")

    assert alike(race, named, [known("scale-missing")]) is None
    assert alike(KEY, named, [known("scale-missing", key=race)]) is None
    assert alike(KEY, named, [known("scale-missing", key=race), known("scale-missing", key=OTHER)]).key == OTHER


def test_what_was_read_off_the_kernel_is_one_defect_where_nothing_has_a_name():
    read = Diagnosis(sentence="O misses key 3. 2 of 4 fail.", reading="O misses key 3.")
    found = msgspec.structs.replace(known(""), diagnosis=read)

    assert alike(OTHER, msgspec.structs.replace(read, sentence="O misses key 3. 9 of 9 fail."), [found]) is found
    assert alike(OTHER, msgspec.structs.replace(read, reading="O misses key 4."), [found]) is None
    assert alike(OTHER, Diagnosis("odd-key", reading=""), [found]) is None
    assert alike(Key("k", "sanitizer", "race", "o", "fp32"), read, [found]) is None


def test_of_names_that_cases_did_not_tell_apart_the_shared_one_stays():
    found = known("maximum-from-a-number", "empty-rows-nan")
    clearer = Diagnosis("empty-rows-nan", "Rows are NaN.", place="row 7")

    assert alike(OTHER, clearer, [found]) is found
    assert agreed(found.diagnosis, clearer).name == "empty-rows-nan"
    assert agreed(found.diagnosis, clearer).place == "row 1", "the case that is shown is that of the first"
    assert agreed(clearer, found.diagnosis) == clearer


def test_one_mistake_that_two_parts_show_is_named_by_the_usual_one():
    relative, alibi = known("relative-bias-without-shift"), Diagnosis("alibi-without-shift", "ALiBi is shifted.")

    assert alike(OTHER, alibi, [relative]) is relative
    both = agreed(relative.diagnosis, alibi)
    assert (both.name, both.also) == ("alibi-without-shift", ())
    assert both.sentence == "ALiBi is shifted. Other cases show it so: relative-bias-without-shift."
    assert agreed(alibi, relative.diagnosis).name == "alibi-without-shift"


def test_a_term_that_is_looked_up_for_another_head_is_one_mistake_in_every_term():
    bias, sink = known("bias-of-kv-head"), known("sink-of-kv-head")

    assert alike(OTHER, Diagnosis("alibi-slope-of-kv-head"), [bias]) is bias
    assert alike(OTHER, Diagnosis("relative-bias-of-kv-head"), [sink]) is sink
    assert alike(OTHER, Diagnosis("alibi-slope-of-next-head"), [bias, sink]) is None


def test_names_of_different_mistakes_have_no_common_name():
    assert canonical("causal-one-key-more", "window-left-one-wider") == ""
    assert canonical("causal-one-key-more", "window-right-one-wider") == "causal-one-key-more"
    assert canonical("softcap-missing", "softcap-missing") == "softcap-missing"
