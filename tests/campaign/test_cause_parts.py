"""The parts of telling causes apart: what follows from what, what is clear, which cases are kept."""

import msgspec
import pytest

from flashverify.campaign.causes.clearness import clearness
from flashverify.campaign.causes.reservoir import Reservoir
from flashverify.campaign.causes.sighting import sightings_of
from flashverify.campaign.causes.symptoms import Symptoms, consequences
from flashverify.campaign.store.writer import RunStore, open_run
from flashverify.campaign.supervisor.budget import Budget, Explaining
from flashverify.case.text import parse_case
from flashverify.judge.record import FindingRecord, RunRecord
from flashverify.judge.verdict import CaseResult, Key, OutputStats, Status, Verdict


def wrong(output, mode="end-to-end", ratio=8.0, check="accuracy", error="bound"):
    return Verdict(check=check, status=Status.FAIL, output=output, error=error, mode=mode, ratio=ratio.hex())


def result(*verdicts, case="fv1", given=("dq", "dk", "dv")):
    stats = tuple(OutputStats(output, "conditional", 4) for output in given)
    stats += tuple(OutputStats(output, "end-to-end", 4) for output in ("o", "lse", "dq", "dk", "dv"))
    return CaseResult(case, "kernel", "cpu", verdicts, stats)


def test_a_gradient_that_is_right_given_the_wrong_o_follows_from_it():
    failures = [wrong("o"), wrong("dq")]

    assert consequences(failures, ["dq"]) == {"dq": "follows from the wrong O"}
    assert consequences(failures, []) == {}, "nobody judged it given O and LSE"
    assert consequences([wrong("dq")], ["dq"]) == {}, "O and the LSE are right"


@pytest.mark.parametrize("mode", ["conditional", "strict"])
def test_a_gradient_that_is_wrong_given_o_and_lse_too_has_a_cause_of_its_own(mode):
    assert consequences([wrong("o"), wrong("dq"), wrong("dq", mode)], ["dq"]) == {}


def test_a_gradient_that_is_right_end_to_end_does_not_use_an_lse_that_is_far_off():
    conditional = wrong("dk", "conditional")

    assert list(consequences([wrong("lse", ratio=1e4), conditional], ["dk"])) == ["dk"]
    assert consequences([wrong("lse", ratio=2.0), conditional], ["dk"]) == {}, "it may be a small error of its own"
    assert consequences([wrong("o", "strict", ratio=1e4), conditional], ["dk"]) == {}


def test_a_failure_of_another_case_is_kept_with_that_case_and_what_failed_on_it():
    there = msgspec.structs.replace(wrong("o"), case="fv1 seq_q=3")
    found = {sighting.key.output: sighting for sighting in sightings_of(result(there, wrong("dq"))).values()}

    assert {output: s.case for output, s in found.items()} == {"o": "fv1 seq_q=3", "dq": "fv1"}
    assert {output: [v.output for v in s.failures] for output, s in found.items()} == {"o": ["o"], "dq": ["dq"]}
    assert (found["o"].given, found["dq"].given) == ((), ("dk", "dq", "dv")), (
        "the comparisons are those of the case judged"
    )


def test_symptoms_tell_own_failures_from_those_that_follow():
    found = Symptoms(
        result(wrong("o"), wrong("dq"), wrong("dk", "conditional"), wrong("dq", check="relations", error="x"))
    )

    assert ("accuracy", "bound", "dq") in found.seen
    assert found.own == {("accuracy", "bound", "o"), ("accuracy", "bound", "dk"), ("relations", "x", "dq")}
    assert found.asked(("accuracy", "bound", "dv"))
    assert not found.asked(("accuracy", "bound", "dbias")), "there is no bias"


@pytest.mark.parametrize("status", [Status.ERROR, Status.UNSUPPORTED])
def test_a_case_that_could_not_be_judged_says_nothing(status):
    found = Symptoms(result(Verdict(check="supports", status=status), Verdict(check="memory", status=Status.PASS)))

    assert not found.asked(("accuracy", "bound", "o"))


def test_the_clearest_bucket_compares_o_in_fp32_with_exact_values():
    keys = [
        Key("k", "sanitizer", "race", "q_view", "fp32"),
        Key("k", "determinism", "order", "o", "fp32"),
        Key("k", "determinism", "repeat", "o", "bf16"),
        Key("k", "accuracy", "bound", "dk", "fp32"),
        Key("k", "accuracy", "bound", "dq", "fp32"),
        Key("k", "accuracy", "bound", "o", "bf16"),
        Key("k", "accuracy", "bound", "lse", "fp32"),
        Key("k", "accuracy", "bound", "o", "fp32"),
    ]
    ordered = sorted(keys, key=lambda key: clearness(key, "fv1"))

    assert [(k.check, k.error, k.output, k.dtype) for k in ordered[:5]] == [
        ("accuracy", "bound", "o", "fp32"),
        ("accuracy", "bound", "lse", "fp32"),
        ("accuracy", "bound", "o", "bf16"),
        ("accuracy", "bound", "dq", "fp32"),
        ("accuracy", "bound", "dk", "fp32"),
    ]
    assert [k.error for k in ordered[5:]] == ["race", "repeat", "order"]
    small, large = "fv1 seq_q=2 seq_k=2", "fv1 seq_q=2 seq_k=3"
    assert clearness(keys[0], small) < clearness(keys[0], large)


def keep(reservoir, text, *verdicts):
    case = parse_case(text)
    for sighting in sightings_of(result(*verdicts, case=text)).values():
        reservoir.add(sighting, case)


def test_the_cases_that_are_kept_differ_in_parts_sizes_or_in_what_else_fails():
    reservoir = Reservoir()
    plain = "fv1 seq_q=4 seq_k=4"
    keep(reservoir, plain, wrong("o"))
    keep(reservoir, f"{plain} seed=1", wrong("o"))
    keep(reservoir, f"{plain} causal=top-left", wrong("o"))
    keep(reservoir, "fv1 seq_q=4 seq_k=70", wrong("o"))
    keep(reservoir, f"{plain} seed=2", wrong("o"), wrong("lse"))
    keep(reservoir, f"{plain} softcap=2 edits=q:0,0,0,0:nan", wrong("o"))

    key = Key("kernel", "accuracy", "bound", "o", "fp16")
    others = [sighting.case for sighting in reservoir.beside(()) if sighting.key == key]
    assert reservoir.leading(key).case == plain
    assert others == [f"{plain} causal=top-left", "fv1 seq_q=4 seq_k=70", f"{plain} seed=2"]
    assert [reservoir.unusual(s) for s in reservoir.beside(()) if s.key == key] == [False, False, True]


def test_a_case_on_which_a_gradient_is_wrong_given_o_and_the_lse_is_kept_beside_those_on_which_it_follows():
    reservoir = Reservoir()
    keep(reservoir, "fv1 seq_q=4 seq_k=4", wrong("o"), wrong("dq"))
    keep(reservoir, "fv1 seq_q=4 seq_k=5", wrong("o"), wrong("dq"))
    keep(reservoir, "fv1 seq_q=4 seq_k=6", wrong("o"), wrong("dq"), wrong("dq", "conditional"))

    key = Key("kernel", "accuracy", "bound", "dq", "fp16")
    others = [sighting for sighting in reservoir.beside(()) if sighting.key == key]
    assert [sighting.case for sighting in others] == ["fv1 seq_q=4 seq_k=6"]
    assert all(map(reservoir.unusual, others)), "it is asked about first"


def test_after_the_search_asking_for_one_cause_may_take_all_the_time_that_is_left():
    now = [0.0]
    budget = Budget(60.0, 120.0, clock=lambda: now[0])
    share = Explaining(budget, 1, share=1 / 3, least=None, clock=lambda: now[0])
    share.begin(0, 20.0)
    now[0] = 60.0
    share.end(0)

    assert share.next_slice(90.0, searching=False) == 0.0
    assert share.next_slice(90.0, searching=False, folding=True) == 6.0
    assert share.next_slice(90.0, searching=True, folding=True) == 0.0


def test_the_folder_of_a_folded_finding_goes_and_what_was_set_aside_stays(tmp_path):
    store = RunStore(tmp_path / "run")
    store.write_header(RunRecord("fuzz", ("k",), 0, {}))
    keys = [Key("k", "accuracy", "bound", output, "fp16") for output in ("o", "lse")]
    folders = [store.write_finding(FindingRecord(key, "fv1", "fv1", wrong(key.output), "cpu", "k")) for key in keys]
    (folders[1] / "finding.json.corrupt").write_text("damaged", encoding="utf-8")
    for key in keys:
        store.remove_finding(key)
        store.remove_finding(key)
    store.close()

    assert open_run(tmp_path / "run").findings == ()
    assert [folder.exists() for folder in folders] == [False, True]
    assert [path.name for path in folders[1].iterdir()] == ["finding.json.corrupt"]
