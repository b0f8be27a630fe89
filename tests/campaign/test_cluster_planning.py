"""Places and workers of a cluster: what each machine has room for, who runs where, and how much memory that leaves."""

import pytest

from flashverify.campaign.cluster.planning import (
    Node,
    Place,
    assignment,
    device_of,
    memory_of_worker,
    places_of,
    with_workers,
)

BARE, SMALL, BIG = Node("z", "bare", 0, 0), Node("s", "small", 1, 4), Node("b", "big", 9, 2)
TWO = (Place("x", BIG, 2, gpu=True), Place("y", SMALL, 1, gpu=True))


def test_the_cpus_of_a_machine_are_one_place_and_a_machine_without_any_is_none():
    assert places_of((BARE, BIG), "cpu") == (Place("big/cpu", BIG, 9, gpu=False),)


def test_each_gpu_is_a_place_with_its_share_of_the_cpus_and_one_worker_at_least():
    assert places_of((BARE, BIG), "cuda") == tuple(Place(f"big/gpu{n}", BIG, 4, gpu=True) for n in range(2))
    assert places_of((SMALL,), "cuda") == tuple(Place(f"small/gpu{n}", SMALL, 1, gpu=True) for n in range(4))
    assert places_of((Node("w", "wide", 400, 1),), "cuda")[0].workers == 14
    assert places_of((Node("o", "one", 6, 1),), "cuda")[0].workers == 6
    assert places_of((BIG,), "tpu") == ()


def test_machines_of_one_address_are_counted():
    same = [Node(str(n), "h", 1, 0) for n in range(3)]

    assert [place.name for place in places_of((*same, BIG), "cpu")] == ["h/cpu", "h#2/cpu", "h#3/cpu", "big/cpu"]


@pytest.mark.parametrize(("nodes", "device"), [((), "cpu"), ((BARE,), "cpu"), ((BARE, SMALL), "cuda")])
def test_auto_is_a_gpu_where_any_machine_has_one_and_cpu_is_always_there(nodes, device):
    assert device_of("auto", nodes) == device
    assert device_of("cpu", nodes) == "cpu"


@pytest.mark.parametrize(
    ("workers", "names"), [(None, "xyx"), (0, ""), (1, "x"), (2, "xy"), (3, "xyx"), (4, "xyxx"), (8, "xyxxyxxy")]
)
def test_places_take_turns_until_each_is_full_and_then_begin_again(workers, names):
    assert "".join(assignment(TWO, workers)) == names
    assert assignment((), workers) == ()


def test_a_place_that_is_full_waits_until_all_are():
    places = (Place("y", SMALL, 1, gpu=True), Place("x", BIG, 3, gpu=True))

    assert "".join(assignment(places, 6)) == "yxxxyx"


def test_a_place_without_a_worker_is_left_out_and_the_others_keep_their_order():
    assert with_workers(TWO, ("y", "x", "y")) == (Place("x", BIG, 1, gpu=True), Place("y", SMALL, 2, gpu=True))
    assert with_workers(TWO, ("y",)) == (Place("y", SMALL, 1, gpu=True),)


def test_workers_of_all_places_of_a_machine_share_its_memory_with_its_compilers():
    places = (*places_of((BIG,), "cuda"), Place("y", SMALL, 1, gpu=True))
    memory = {"big/gpu0": 8000, "big/gpu1": 8000, "y": 900}

    assert memory_of_worker(places, memory) == 720, "of the machine that has least for each"
    assert memory_of_worker(places[:2], memory) == 800
    assert memory_of_worker(places[:2], memory, compilers=4) == 640, "one that compiles needs half as much"
    assert memory_of_worker(places, memory | {"y": 0}) == 800, "nobody knows how much y has"
    assert memory_of_worker(places, {"y": 900}) == 720
    assert memory_of_worker((), memory) is None
