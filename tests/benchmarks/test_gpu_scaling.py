"""The factor of several GPUs: what is measured of a search, and on what it runs."""

import argparse
import os

import pytest


@pytest.fixture
def gpu_scaling():
    import gpu_scaling

    return gpu_scaling


def test_a_search_is_measured_from_its_twentieth_second_to_its_end(gpu_scaling):
    timeline = [[0.5, 0, 0], [12.0, 50, 9], [22.0, 100, 9], [32.0, 300, 9], [42.0, 500, 9], [71.0, 520, 9]]

    assert gpu_scaling.rate_of(timeline, 60.0) == pytest.approx(20.0)
    with pytest.raises(SystemExit, match="--seconds=25 is not accepted"):
        gpu_scaling.rate_of(timeline, 25.0)


@pytest.mark.parametrize(
    ("processors", "count", "parts"),
    [
        ([0, 1, 2, 3], 2, [[0, 1], [2, 3]]),
        ([4, 6, 7], 2, [[4], [6]]),
        ([0, 1, 2, 3, 4, 5], 3, [[0, 1], [2, 3], [4, 5]]),
        ([5], 2, [[5], [5]]),
    ],
)
def test_the_processors_fall_into_equal_parts(gpu_scaling, processors, count, parts):
    assert gpu_scaling.shares(processors, count) == parts


def test_one_gpu_has_its_share_of_the_processors_and_of_the_workers(gpu_scaling, tmp_path, monkeypatch):
    seen, every = [], sorted(os.sched_getaffinity(0))

    def measured(config):
        seen.append((config, sorted(os.sched_getaffinity(0))))
        return {"stats": {"timeline": [[20.0, 0, 0], [30.0, 100, 0]], "compiled": 0}}

    monkeypatch.setattr(gpu_scaling, "measured", measured)
    options = argparse.Namespace(subject="bundled", per_gpu=7, seed=1, seconds=60.0, mps=True)

    of_one = gpu_scaling.shares(every, 2)[0]
    rows = [gpu_scaling.search(gpus, own, tmp_path, options) for gpus, own in ((("3",), of_one), (("3", "5"), every))]

    assert [(config.gpus, config.workers, config.compilers) for config, _ in seen] == [
        (("3",), 7, 7),
        (("3", "5"), 14, 14),
    ]
    assert [processors for _, processors in seen] == [of_one, every]
    assert sorted(os.sched_getaffinity(0)) == every
    assert [row["rate"] for row in rows] == [10.0, 10.0]
