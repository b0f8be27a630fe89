"""What is kept of the kinds that a search compiled, and what the next one makes of it."""

import json

import pytest

from flashverify.campaign.supervisor import known_kinds
from flashverify.campaign.supervisor.known_kinds import KnownKinds
from flashverify.campaign.supervisor.readiness import Readiness
from tests.campaign.test_readiness import answer, texts

FILE = "flashverify-kinds.json"


def stored(folder, **kinds):
    known = KnownKinds(str(folder))
    for spec, numbers in kinds.items():
        for number in numbers:
            known.add(spec, number)
    known.store()
    return known


def test_kinds_are_known_to_the_next_search_beside_those_of_others(tmp_path):
    stored(tmp_path, one=[4, 0], other=[2])
    stored(tmp_path, one=[1, 4])

    known = KnownKinds(str(tmp_path))
    assert (known.of("one"), known.of("other"), known.of("third")) == ((0, 1, 4), (2,), ())
    assert [path.name for path in tmp_path.iterdir()] == [FILE], "nothing half written is left"


def test_nothing_is_written_where_nothing_is_new(tmp_path):
    KnownKinds(str(tmp_path)).store()
    assert list(tmp_path.iterdir()) == []
    known = stored(tmp_path, one=[0])
    (tmp_path / FILE).unlink()
    known.store()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"[", b'{"listing": 3}', b'{"listing": "", "kinds": {"one": ["a"]}}', b"\xff"])
def test_a_damaged_file_counts_as_empty_and_is_replaced(tmp_path, data):
    (tmp_path / FILE).write_bytes(data)
    assert KnownKinds(str(tmp_path)).of("one") == ()

    stored(tmp_path, one=[3])
    assert KnownKinds(str(tmp_path)).of("one") == (3,)


def test_numbers_of_another_listing_of_kinds_mean_nothing(tmp_path, monkeypatch):
    stored(tmp_path, one=[3])
    monkeypatch.setattr(known_kinds, "_listing", lambda: "another")

    assert KnownKinds(str(tmp_path)).of("one") == ()
    stored(tmp_path, one=[0])
    assert json.loads((tmp_path / FILE).read_text()) == {"listing": "another", "kinds": {"one": [0]}}


def test_a_folder_that_is_not_there_keeps_nothing_and_says_nothing(tmp_path):
    assert stored(tmp_path / "gone", one=[3]).of("one") == ()
    assert KnownKinds("").of("one") == stored("", one=[3]).of("one") == ()


def test_the_listing_follows_the_code_that_lists(tmp_path, monkeypatch):
    package = tmp_path / "package"
    for part in known_kinds._LISTING:
        (package / part).mkdir(parents=True)
        (package / part / "space.py").write_text("KINDS = 3")
    monkeypatch.setattr(known_kinds, "_PACKAGE", package)
    first = known_kinds._listing.__wrapped__()
    (package / "case" / "space.py").write_text("KINDS = 4")

    assert first != known_kinds._listing.__wrapped__() == known_kinds._listing.__wrapped__()


def test_a_kind_that_an_earlier_search_compiled_is_drawn_from_at_once_and_compiled_once_more():
    ready = Readiness(("s", "t"), 0, known={"s": (0, 3)})
    assert (ready.kinds("s"), ready.kinds("t")) == ((0, 3), ())

    task = next(task for task in iter(lambda: ready.next(0, 0.0), None) if task.subject == "s")
    ready.prepared(answer(task, compiled=0))
    assert (task.kind, ready.kinds("s")) == (0, (0, 3))


def test_where_the_kernels_of_an_earlier_search_are_gone_only_what_this_one_compiled_is_drawn_from():
    ready = Readiness(("s",), 0, known={"s": (0, 3)})
    ready.prepared(answer(ready.next(0, 0.0)))
    ready.judged("s")
    put_off = texts(34)
    for text in put_off[:33]:
        ready.wait("s", text)
    assert ready.kinds("s") == (0, 3)

    ready.wait("s", put_off[33])
    assert ready.kinds("s") == (0,)


def test_cases_that_are_put_off_now_and_then_leave_what_is_known():
    ready = Readiness(("s",), 0, known={"s": (0, 3)})
    for text in texts(200):
        ready.judged("s")
        ready.wait("s", text)

    assert ready.kinds("s") == (0, 3)
