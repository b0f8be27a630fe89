"""What is compiled next, and what may be judged, without any process."""

from flashverify.campaign.protocol import Chunk, Prepare, Prepared
from flashverify.campaign.supervisor.readiness import Readiness
from flashverify.campaign.supervisor.schedule import CampaignConfig, Schedule
from flashverify.case.case import Case


def answer(task, cases=("a", "b"), **changes):
    given = {"launches": 4, "compiled": 4, "usual": 2, "total": 5}
    return Prepared(task.subject, task.cases or cases, task.kind, **(given | changes))


def texts(count):
    return [str(Case(seq_q=n + 1)) for n in range(count)]


def test_a_kind_is_drawn_from_once_it_is_compiled_and_its_cases_are_judged():
    ready = Readiness(("s",), 0)
    assert ready.kinds("s") == ()

    task = ready.next(0, 0.0)
    assert (task.kind, task.examples > 0) == (0, True)
    assert ready.next(0, 0.0).kind == 1, "another process takes the next kind"
    assert ready.kinds("s") == ()
    ready.prepared(answer(task))

    assert (ready.kinds("s"), ready.ready, ready.compiled) == ((0,), 1, 4)
    assert ready.chunk(None) == Chunk("s", ("a", "b"), "fuzz")
    assert ready.chunk(None) is None


def test_a_kind_of_which_nothing_can_be_drawn_is_left_out():
    ready = Readiness(("s",), 0)
    ready.prepared(answer(ready.next(0, 0.0), cases=(), launches=0))

    assert ready.kinds("s") == ()
    assert ready.next(0, 0.0).kind == 1


def test_corpus_kinds_and_cases_that_were_put_off_take_turns_until_nothing_waits():
    ready, (first, second, third, *_) = Readiness(("s",), 0), texts(4)
    ready.listed("s", (first, second, third))
    ready.wait("s", texts(4)[3])

    tasks = []
    while (task := ready.next(0, 0.0)) is not None and len(tasks) < 20:
        tasks.append(task)
        ready.prepared(answer(task))

    assert [task.kind for task in tasks if task.kind >= 0] == [0, 1, 2, 3, 4]
    assert [task.cases for task in tasks[:4]] == [(), (first, second), (texts(4)[3],), ()]
    assert sorted(case for task in tasks for case in task.cases) == sorted(texts(4))
    assert len({task.seed for task in tasks if task.kind >= 0}) == 5


def test_after_two_minutes_ten_kernels_are_compiled_for_a_thousand_cases():
    ready = Readiness(("s",), 0)
    for _ in range(3):
        ready.prepared(answer(ready.next(500, 60.0)))
    ready.next(500, 120.0)
    ready.prepared(answer(Prepare("s", kind=3), compiled=5))

    assert ready.next(999, 121.0) is None
    assert ready.next(1000, 121.0) is not None
    ready.prepared(answer(Prepare("s", kind=4), compiled=0))
    assert ready.next(1000, 122.0) is None, "there are five kinds"


def test_of_the_cases_that_wait_those_go_that_cover_least():
    ready = Readiness(("s",), 0)
    plain, rare = texts(80), str(Case(dim_qk=40, dim_v=128, dtype="bf16", heads_q=4))
    ready.wait("s", plain[0])
    ready.wait("s", rare)
    taken = [task for task in (ready.next(0, 0.0) for _ in range(3)) if task.kind < 0]
    for text in plain[1:]:
        ready.wait("s", text)

    waiting = []
    while (task := ready.next(0, 0.0)) is not None and len(waiting) < 90:
        waiting += task.cases
        ready.prepared(answer(task))
    assert len(taken) == 1
    assert (len(waiting), ready.dropped) == (64, 16)
    assert rare in waiting


def test_a_subject_without_kernels_is_drawn_freely_and_nothing_of_it_is_kept_back():
    ready = Readiness(("s", "t"), 0)
    ready.listed("s", ("x",))
    ready.prepared(answer(Prepare("s", kind=0), launches=0))

    assert (ready.kinds("s"), ready.kinds("t")) == (None, ())
    assert [ready.chunk(None).cases, ready.chunk(None).cases] == [("a", "b"), ("x",)]
    assert {ready.next(0, 0.0).subject for _ in range(3)} == {"t"}
    ready.listed("s", ("y",))
    assert ready.chunk(None).cases == ("y",)


def test_the_case_over_which_a_compiler_died_is_judged_and_the_others_are_compiled():
    ready = Readiness(("s",), 0)
    ready.lost(Prepare("s", ("a", "b")), "a")

    assert ready.chunk(None).cases == ("a",)
    assert ("b",) in [ready.next(0, 0.0).cases for _ in range(3)]


def test_batches_wait_for_a_kind_and_are_drawn_from_those_that_are_ready(tmp_path):
    config = CampaignConfig(kind="fuzz", subjects=("s", "t"), out=tmp_path, device="cuda", workers=2, corpus=True)
    ready = Readiness(config.subjects, 0)
    schedule = Schedule(config, lambda _: None, readiness=ready)
    schedule.next(None, False, lambda _: ())
    schedule.next(None, False, lambda _: ())  # the corpus of each
    schedule.listed("s", ("a", "b", "c"), corpus=True)
    assert schedule.next(None, False, lambda _: ()) is None

    ready.prepared(answer(Prepare("t", kind=0)))
    chunk = schedule.next(1, False, lambda _: ())
    batches = [schedule.next(30, False, lambda _: ()) for _ in range(2)]

    assert chunk == Chunk("t", ("a",), "fuzz")
    assert batches[0] == Chunk("t", ("b",), "fuzz")
    assert (batches[1].subject, batches[1].kinds, batches[1].examples) == ("t", (0,), 30)
    assert schedule.next(0, False, lambda _: ()) is None
