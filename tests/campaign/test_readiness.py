"""What is compiled next, and what may be judged, without any process."""

from flashverify.campaign.protocol import Chunk, Prepare, Prepared
from flashverify.campaign.supervisor.readiness import Readiness
from flashverify.case.case import Case
from flashverify.judge.verdict import CaseResult
from tests.campaign.notes import Notes, following, schedule


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
    assert ready.chunk(None) == Chunk("s", ("a", "b"), "fuzz", "compiled s")
    assert ready.chunk(None) is None


def test_a_kind_of_which_nothing_can_be_drawn_is_left_out():
    ready = Readiness(("s",), 0)
    ready.prepared(answer(ready.next(0, 0.0), cases=(), launches=0))

    assert ready.kinds("s") == ()
    assert ready.next(0, 0.0).kind == 1


def test_corpus_kinds_and_cases_that_were_put_off_take_turns_until_nothing_waits():
    ready, (first, second, third, *_) = Readiness(("s",), 0), texts(4)
    ready.listed(Chunk("s", (first, second, third), "fuzz", "corpus s"))
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
    ready.listed(Chunk("s", ("x",), "fuzz", "corpus s"))
    ready.prepared(answer(Prepare("s", kind=0), launches=0))

    assert (ready.kinds("s"), ready.kinds("t")) == (None, ())
    assert [ready.chunk(None).cases, ready.chunk(None).cases] == [("x",), ("a", "b")]
    assert {ready.next(0, 0.0).subject for _ in range(3)} == {"t"}
    ready.listed(Chunk("s", ("y",), "fuzz", "corpus s"))
    assert ready.chunk(None).cases == ("y",)


def test_the_case_over_which_a_compiler_died_is_judged_and_the_others_are_compiled():
    ready = Readiness(("s",), 0)
    ready.listed(Chunk("s", ("a", "b"), "fuzz", "corpus s"))
    task = next(task for task in iter(lambda: ready.next(0, 0.0), None) if task.cases)
    ready.lost(task, "a")

    assert ready.chunk(None) == Chunk("s", ("a",), "fuzz", "corpus s")
    assert ("b",) in [ready.next(0, 0.0).cases for _ in range(3)]


def test_a_case_of_the_corpus_that_is_being_compiled_when_its_subject_is_given_up_is_judged_once():
    ready = Readiness(("s",), 0)
    ready.listed(Chunk("s", ("a", "b", "c"), "fuzz", "corpus s"))
    task = next(task for task in iter(lambda: ready.next(0, 0.0), None) if task.cases)
    ready.give_up("s")
    ready.prepared(answer(task))

    judged = [case for chunk in iter(lambda: ready.chunk(0), None) for case in chunk.cases]
    assert sorted(judged) == ["a", "b", "c"]
    assert not ready.lists_wait


def test_drawn_cases_that_wait_are_judged_when_their_subject_is_given_up():
    ready = Readiness(("s",), 0)
    for text in texts(2):
        ready.wait("s", text)
    ready.give_up("s")

    assert ready.chunk(None).cases == tuple(texts(2))
    assert (ready.waiting, ready.chunk(None)) == (0, None)


def of_a_gpu(tmp_path, notes=None, stored=(), **changes):
    given = {"device": "cuda", "workers": 2, "compilers": 1, "ready": True}
    return schedule(tmp_path, notes, stored, **(given | changes))


def result(case, origin):
    return CaseResult(case, "s", "cuda", (), origin=origin)


def judge(found, chunk, cases=None):
    """A worker judges cases of a chunk or a batch, and they are stored; the results."""
    marked = [found.answered(chunk, result(case, "")) for case in cases or chunk.cases]
    for each in marked:
        found.stored(each)
    return marked


def test_batches_wait_for_a_kind_and_are_drawn_from_those_that_are_ready(tmp_path):
    found, ready = of_a_gpu(tmp_path, corpus=True, max_cases=50)
    for _ in range(2):
        following(found)  # the corpus of each
    found.listed("a", ("x", "y", "z"), corpus=True)
    assert following(found) is None, "how many cases are drawn is not known"
    found.listed("b", (), corpus=True)
    assert following(found) is None
    assert found.cases_wait, "for a compiler"

    ready.prepared(answer(Prepare("b", kind=0)))
    chunk, batch = following(found), following(found)

    assert chunk == Chunk("b", ("a", "b"), "fuzz", "compiled b")
    assert (batch.subject, batch.kinds, batch.examples, batch.fixed) == ("b", (0,), 40, False)
    assert (batch.number, batch.most) == (1, 40), "the first batch is of the other subject, and waits"
    rest = following(found)
    assert (rest.number, rest.most) == (3, 50 - 3 - 2 - 40)
    assert following(found) is None


def test_what_is_compiled_ahead_counts_and_no_case_more_is_judged_than_asked_for(tmp_path):
    found, ready = of_a_gpu(tmp_path, subjects=("a",), max_cases=12, batch=5)
    ready.prepared(answer(Prepare("a", kind=0), cases=("1", "2", "3", "4")))
    chunks = [following(found) for _ in range(2)]
    batch, last = following(found), following(found)

    assert [len(chunk.cases) for chunk in chunks] == [2, 2]
    assert (batch.most, last.most) == (5, 3)
    for text in texts(3):
        ready.wait("a", text)
    for task in [task for task in (ready.next(0, 0.0) for _ in range(9)) if task is not None and task.cases]:
        ready.prepared(answer(task))
    assert following(found) is None, "there is no room beside the batches"
    judge(found, batch, ("5", "6", "7"))
    found.batch_ended(batch, stopped=False, put_off=2)
    judge(found, last, ("8",))
    found.batch_ended(last, stopped=False, put_off=2)
    later = [following(found) for _ in range(4)]

    assert [chunk.cases for chunk in later[:3]] == [(text,) for text in texts(3)]
    assert later[3].most == 1
    assert found.part == "4 of 12 cases judged"


def test_a_run_that_goes_on_judges_what_was_put_off_and_nothing_twice(tmp_path):
    notes = Notes()
    found, ready = of_a_gpu(tmp_path, notes, subjects=("a",))
    first, second, third = texts(3)
    ready.prepared(answer(Prepare("a", kind=0), cases=("1", "2")))
    stored = judge(found, following(found), ("1",))
    batch = following(found)
    stored += judge(found, batch, ("5",))
    ready.wait("a", first)
    ready.wait("a", second)
    ready.wait("a", third)
    found.batch_ended(batch, stopped=False, put_off=3)
    waiting = next(task for task in iter(lambda: ready.next(0, 0.0), None) if task.cases)
    ready.prepared(answer(waiting))
    stored += judge(found, following(found))
    following(found)  # a batch, which notes what waits

    found, ready = of_a_gpu(tmp_path, notes, [(each, "a") for each in stored], subjects=("a",))
    assert following(found) is None
    ready.prepared(answer(Prepare("a", kind=0), cases=("1", "2")))
    assert following(found).cases == ("2",)
    assert ready.waiting == 2, "what was put off and not judged"
    for text in texts(3):
        ready.wait("a", text)
    assert ready.waiting == 2, "nothing waits twice"
    tasks = [task for task in iter(lambda: ready.next(0, 0.0), None) if task.cases]
    assert sorted(case for task in tasks for case in task.cases) == sorted({first, second, third} - {*waiting.cases})
    assert following(found).number == 1, "the first batch is over"


def test_a_batch_whose_worker_was_lost_goes_on_with_the_kinds_that_are_ready_then(tmp_path):
    found, ready = of_a_gpu(tmp_path, subjects=("a",), max_cases=60)
    ready.prepared(answer(Prepare("a", kind=0), cases=()))
    ready.prepared(answer(Prepare("a", kind=1), cases=("1",)))
    following(found)
    batch = following(found)
    judge(found, batch, ("5", "6"))
    ready.prepared(answer(Prepare("a", kind=4), cases=("2",)))
    assert found.lost(batch, 2)
    judge(found, following(found))
    again = following(found)

    assert (batch.kinds, again.kinds) == ((1,), (1, 4))
    assert (again.number, again.most, again.fixed) == (batch.number, 40, False)
    assert [each.case for each in again.answered] == ["5", "6"]


def test_a_case_that_was_judged_without_a_check_is_compiled_for_others_and_not_judged_again():
    ready, (first, second) = Readiness(("s",), 0), texts(2)
    ready.want("s", first)
    ready.wait("s", second)

    compiled = []
    while (task := ready.next(0, 0.0)) is not None:
        compiled += task.cases
        ready.prepared(answer(task, cases=()))
    handed = [case for chunk in iter(lambda: ready.chunk(None), None) for case in chunk.cases]

    assert sorted(compiled) == sorted((first, second))
    assert handed == [second]


def test_of_too_many_cases_that_wait_one_that_was_judged_is_no_loss():
    ready = Readiness(("s",), 0)
    for text in texts(66):
        ready.want("s", text)

    assert (ready.waiting, ready.dropped) == (64, 0)
    ready.give_up("s")
    assert ready.chunk(None) is None
