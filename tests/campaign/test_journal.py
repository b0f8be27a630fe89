"""What was handed out is judged once: whoever judges it, in whatever order, however often the campaign is ended."""

from random import Random

import msgspec
import pytest

from flashverify.campaign.protocol import Batch, CaseList, Chunk
from flashverify.campaign.store.notes import Claims
from flashverify.campaign.store.writer import RunStore
from flashverify.campaign.supervisor.journal import batch_of
from flashverify.errors import UsageError
from flashverify.judge.verdict import CaseResult, OutputStats, Status, Verdict
from tests.campaign.notes import Notes, following, schedule

SIZE = 7
LISTED = {("a", True): ("c1", "c2", "c3"), ("b", True): ("c4", "c5"), ("a", False): ("m1", "m2"), ("b", False): ("m3",)}


def result(case, origin="", worst=0.0):
    stats = (OutputStats("o", "end-to-end", 1, worst=worst.hex()),) if worst else ()
    return CaseResult(case, "s", "", (Verdict("accuracy", Status.PASS),), stats, origin=origin)


def drawn(number):
    """The cases of a batch; some have fewer than were asked for."""
    return [f"{number}:{n}" for n in range(SIZE if number % 3 else SIZE - 1 - number % 2)]


def sequence(most):
    """The cases of the whole campaign in their order, with what they are marked with."""
    half, found = most // 2, []
    for kind, corpus in (("corpus", True), ("matrix", False)):
        listed = [(f"{kind} {spec}", case) for spec in "ab" for case in LISTED[spec, corpus]]
        found += listed[:half] if corpus else listed
    number = 0
    while len(found) < most:
        found += [(f"batch {number}", case) for case in drawn(number)]
        number += 1
    return found[:most]


class Work:
    """A task in a worker, one case at a time."""

    def __init__(self, task):
        self.task, self.count = task, 0
        if isinstance(task, Batch):
            answered = [each.case for each in task.answered]
            cases = drawn(task.number)
            assert answered == cases[: len(answered)]
            self.left = cases[len(answered) : task.most]
        else:
            self.left = list(task.cases)


def campaign(tmp_path, pick, workers, most, disturbed):
    """The results that are stored in the end; `disturbed` is the chance of a death or an end at every step."""
    notes, disk = Notes(), []
    while True:
        stored = [(each, each.subject) for each in disk]
        found = schedule(tmp_path, notes, stored, max_cases=most, corpus=True, matrix=True, batch=SIZE, workers=workers)
        busy = {}
        while True:
            for number in set(range(workers)) - busy.keys():
                if (task := following(found)) is not None:
                    busy[number] = Work(task) if not isinstance(task, CaseList) else task
            if not busy:
                assert [found.cases_wait, found.draws_wait] == [False, False]
                return disk, found, notes
            number = pick.choice(sorted(busy))
            work, fate = busy[number], pick.random()
            if fate < disturbed / 2:
                break  # kill -9 of the supervisor
            if fate < disturbed:
                del busy[number]
                found.lost(getattr(work, "task", work), getattr(work, "count", 0))
            elif isinstance(work, CaseList):
                del busy[number]
                found.listed(work.subject, LISTED[work.subject, work.corpus], corpus=work.corpus)
            elif work.left:
                marked = found.answered(work.task, result(work.left.pop(0)))
                work.count += 1
                disk.append(marked)
                found.stored(marked)
            else:
                del busy[number]
                if isinstance(work.task, Batch):
                    found.batch_ended(work.task, stopped=False)


@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.parametrize("disturbed", [0, 0.04])
@pytest.mark.parametrize("most", [3, 12, 40])
def test_the_first_cases_are_judged_once_whatever_happens(tmp_path, workers, disturbed, most):
    for seed in range(12):
        disk, found, notes = campaign(tmp_path, Random(seed), workers, most, disturbed)

        judged = [(each.origin, each.case) for each in disk]
        assert sorted(judged) == sorted(sequence(most)), seed
        assert found.part == ""
        assert not schedule(
            tmp_path, notes, [(r, "") for r in disk], max_cases=most, corpus=True, matrix=True, batch=SIZE
        ).cases_wait


def test_what_is_left_is_said(tmp_path):
    found = schedule(tmp_path, max_cases=10, corpus=True, batch=SIZE, workers=1, subjects=("a",))
    assert found.part == "no corpus case judged"
    found.listed("a", ("c1", "c2", "c3"), corpus=True)
    following(found)
    task = following(found)
    found.stored(found.answered(task, result("c1")))
    assert found.part == "1 of 3 corpus cases judged"
    while isinstance(task, Chunk):
        for case in task.cases:
            found.stored(found.answered(task, result(case)))
        task = following(found)
    found.stored(found.answered(task, result("0:0")))
    assert found.part == "4 of 10 cases judged"


def test_a_batch_that_goes_on_knows_how_close_its_cases_came(tmp_path):
    found = schedule(tmp_path, batch=SIZE)
    task = following(found)
    for case, worst in (("0:0", 0.25), ("0:1", 0.125), ("0:2", 0.5)):
        found.answered(task, result(case, worst=worst))
    found.lost(task, 3)

    again = following(found)
    assert (again.number, again.seed) == (task.number, task.seed)
    assert [(each.case, each.ratios) for each in again.answered] == [
        ("0:0", {"o end-to-end": 0.25}),
        ("0:1", {}),
        ("0:2", {"o end-to-end": 0.5}),
    ]


def test_a_batch_over_which_workers_die_one_after_the_other_is_given_up(tmp_path):
    found = schedule(tmp_path, batch=SIZE)
    first = following(found)
    assert [found.lost(first, 0), following(found).number, found.lost(first, 0), following(found).number] == [
        True,
        0,
        True,
        0,
    ]
    assert not found.lost(first, 0)
    assert following(found).number == 1


def test_only_the_first_batch_of_a_subject_has_the_simplest_case(tmp_path):
    found = schedule(tmp_path, batch=SIZE)
    assert [(t.subject, t.simplest) for t in (following(found) for _ in range(4))] == [
        ("a", True), ("b", True), ("a", False), ("b", False)
    ]  # fmt: skip


def test_a_result_that_is_held_back_keeps_its_batch_open(tmp_path):
    notes = Notes()
    found = schedule(tmp_path, notes, batch=SIZE)
    task = following(found)
    found.answered(task, result("0:0"))
    found.batch_ended(task, stopped=False)
    assert following(found).number == 1
    assert notes.noted.open == (0, 1)


def test_a_lost_note_costs_no_case(tmp_path):
    stored = [(result(f"1:{n}", "batch 1"), "b") for n in range(3)]
    found = schedule(tmp_path, Notes(), stored, batch=SIZE)

    grants = [following(found) for _ in range(3)]
    assert [(task.number, len(task.answered)) for task in grants] == [(0, 0), (1, 3), (2, 0)]


def test_a_search_of_version_0_1_0_goes_on_behind_what_it_had_handed_out(tmp_path):
    stored = [(result("x"), "a")] * 4
    found = schedule(tmp_path, Notes(Claims(3, 1.0)), stored, sealed=False, max_cases=10, corpus=True, batch=SIZE)
    task = following(found)
    assert (task.number, task.most) == (3, 6)

    listed = schedule(
        tmp_path, Notes(Claims()), [(result("c1"), "a")], sealed=False, max_cases=10, corpus=True, subjects=("a",)
    )
    following(listed)
    listed.listed("a", ("c1", "c2"), corpus=True)
    assert following(listed).cases == ("c2",)


def test_given_cases_are_those_of_the_run(tmp_path):
    with pytest.raises(UsageError, match="other cases"):
        schedule(tmp_path, Notes(lists={"given a": ("x",)}), kind="run", subjects=("a",), cases=("y",))


@pytest.mark.parametrize(
    "damage", [b"", b"{", b'{"batches":3,"seconds":1.0,"open":[],"crc32":"00000000"}', b"[" * 10000]
)
def test_a_damaged_note_is_set_aside(tmp_path, damage):
    store = RunStore(tmp_path)
    store.claim(Claims(3, 1.0, (2,)))
    store.write_lists({"corpus a": ("c1",)})
    assert (store.claims(), store.lists()) == (Claims(3, 1.0, (2,)), {"corpus a": ("c1",)})
    for name in ("progress.json", "lists.json"):
        (tmp_path / name).write_bytes(damage)

    assert (store.claims(), store.lists()) == (Claims(open=()), {})
    assert len(store.problems) == 2
    assert damage == (tmp_path / "progress.json.corrupt").read_bytes() == (tmp_path / "lists.json.corrupt").read_bytes()
    store.close()


def test_marks_are_numbers_of_batches_or_names_of_lists():
    assert [batch_of(text) for text in ("batch 12", "batch", "batch x", "batch ٣", "corpus batch 3", "")] == [
        12,
        *[None] * 5,
    ]
    assert msgspec.json.decode(result("x", "batch 1").to_json(), type=CaseResult).origin == "batch 1"
