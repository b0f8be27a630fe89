"""A call with tensors like those of a recent one finds its plan without a key of them, and no other plan."""

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch

from flashverify_kernels import Options, forward, plans, replay
from tests.kernels.plans.launches import Kernel, ints, tensors, ways


def warm(*options):
    """Three calls: one that makes a plan, one that finds it by its key, and one that needs no key of tensors."""
    for _ in range(3):
        forward(*tensors(), *options)


def test_a_call_like_a_recent_one_needs_no_key_of_its_tensors(log, monkeypatch):
    warm()
    log.clear()
    asked = []
    monkeypatch.setattr(plans, "key_of_tensors", lambda *given: asked.append(given))
    kept = [(given := tensors(), forward(*given)) for _ in range(3)]  # at addresses that differ

    assert not asked
    assert ways(log) == {"planned"}
    assert len({given[0].data_ptr() for given, _ in kept}) == 3


@pytest.mark.parametrize(
    "given",
    [
        lambda: tensors(torch.float32),
        lambda: tensors(gap=8),
        lambda: tensors(offset=1),
        lambda: tensors(sq=41),
        lambda: (lambda q, k, v: (q, k, k))(*tensors()),
        lambda: (lambda q, k, v: (q[:, :, :-1], k, v))(*tensors()),
        lambda: (lambda q, k, v: (q, k, v.transpose(2, 3).contiguous().transpose(2, 3)))(*tensors()),
    ],
)
def test_a_call_that_differs_from_recent_ones_has_another_plan(log, given):
    warm()
    log.clear()
    try:
        forward(*given())
    except ValueError:  # the last stride is not 1
        assert not log
    else:
        assert ways(log) == {"ordinary"}


def test_tables_of_another_dtype_are_refused_beside_recent_calls(log):
    q, k, v = tensors()
    for _ in range(3):
        forward(q, k, v, Options(key_lengths=ints(7, 70)))
    assert "planned" in ways(log)
    with pytest.raises(TypeError, match="key_lengths"):
        forward(q, k, v, Options(key_lengths=ints(7, 70).long()))

    assert not log


def test_recent_calls_do_not_pass_to_another_device(log, monkeypatch):
    warm()
    monkeypatch.setattr(plans, "_device", lambda tensors: 1)
    log.clear()
    forward(*tensors())

    assert ways(log) == {"ordinary"}


def test_a_plan_that_made_room_is_not_found_by_recent_calls(log, monkeypatch):
    monkeypatch.setattr(plans, "LIMIT", 1)
    warm()
    assert plans._recent
    forward(*tensors(sq=41))
    assert not plans._recent
    log.clear()
    forward(*tensors())

    assert ways(log) == {"ordinary"}


def test_some_kinds_of_tensors_with_equal_options_are_told_apart_at_once(log, monkeypatch):
    sizes = range(40, 40 + plans._RECENT)
    for _ in range(2):
        for sq in sizes:
            forward(*tensors(sq=sq))
    log.clear()
    monkeypatch.setattr(plans, "key_of_tensors", None)
    for sq in sizes:
        forward(*tensors(sq=sq))

    assert ways(log) == {"planned"}
    assert len(plans._recent) == 1


def test_a_torch_that_compares_no_tensors_has_plans_by_their_keys(log, monkeypatch):
    monkeypatch.setattr(plans, "likeness", lambda given: None)
    warm()
    log.clear()
    forward(*tensors())

    assert not plans._recent
    assert ways(log) == {"planned"}


def test_what_is_kept_for_calls_is_bounded_and_keeps_no_tensor(log):
    given = tensors()
    kept = [weakref.ref(x) for x in given]
    for _ in range(4):
        kept += [weakref.ref(x) for x in forward(*given)]
    del given
    gc.collect()

    assert replay.calls.cache_info().currsize > 0
    assert replay.calls.cache_info().maxsize == replay.CALLS
    assert all(x() is None for x in kept)


def test_each_stream_has_its_own_launches(log, monkeypatch):
    given, streams = tensors(), []
    run = Kernel._run
    monkeypatch.setattr(Kernel, "_run", lambda self, *a: streams.append(a[3]) or run(self, *a))
    for number in (0, 0, 0, 5, 6, 5, 0):
        active = SimpleNamespace(get_current_stream=lambda device, number=number: number)
        monkeypatch.setattr(replay, "driver", SimpleNamespace(active=active))
        forward(*given)

    assert streams == [0, 0, 5, 6, 5, 0]
