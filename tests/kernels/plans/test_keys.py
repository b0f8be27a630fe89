"""The same arguments reach the launcher by a plan, and whatever checks or launches read is part of its key."""

import weakref

import pytest
import torch

from flashverify_kernels import BlockMask, Configs, LaunchConfig, Options, attention, backward, forward, plans
from flashverify_kernels.packed import Packed
from tests.kernels.plans.launches import ints, tensors, ways

CHOICES = {
    "none": dict,
    "causal": lambda: {"causal": "top-left"},
    "window": lambda: {"causal": "bottom-right", "window": (9, 0)},
    "scale": lambda: {"scale": 0.25, "softcap": 5.0},
    "lengths": lambda: {"query_lengths": ints(3, 40), "key_lengths": ints(7, 70)},
    "prefix": lambda: {"causal": "top-left", "prefix_lengths": ints(7, 9)},
    "slopes": lambda: {"alibi_slopes": torch.ones(4), "causal": "top-left"},
    "layout": lambda: {"layout": "bshd"},
    "packed": lambda: {"packed": Packed(ints(0, 3, 40), ints(0, 30, 70), 37, 40)},
    "one table": lambda: {"packed": Packed(*[ints(0, 3, 40)] * 2, 37, 37)},
    "config": lambda: {
        "config": Configs(forward=LaunchConfig(block_m=16, block_n=32, num_warps=4, num_stages=1, descriptors=True))
    },
    "blocks": lambda: {"blocks": BlockMask.from_bool(torch.tensor([[[[True, False], [True, True]]]]), 32, 64)},
    "sink": lambda: {"sink": torch.ones(4)},
    "bias": lambda: {"bias": torch.zeros(2, 4, 40, 70, dtype=torch.float16)},
}


def made(name):
    given = CHOICES[name]()
    return tensors(layout=given.get("layout", "bhsd"), batch=1 if "packed" in given else 2), Options(**given)


def run(log, given, options, needs):
    """What is launched in both directions, with the names of outputs in place of their addresses, and by which ways."""
    log.clear()
    o, lse2 = forward(*given, options)
    found = backward(o, *given, o, lse2, options, needs=needs)
    outputs = {"o": o, "lse2": lse2, **found._asdict()}
    names = {x.data_ptr(): name for name, x in outputs.items() if x is not None}

    def named(value):
        if isinstance(value, (tuple, list)):
            return [named(x) for x in value]
        return names.get(value, value) if isinstance(value, int) else value

    return [named(entry[1:]) for entry in log], {entry[0] for entry in log}


NEEDS = (True,) * 3 + (False,) * 3


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("needs", [NEEDS, (True,) + (False,) * 5])
def test_the_same_arguments_reach_the_launcher(log, name, needs):
    first, options = made(name)
    run(log, first, options, needs)
    given, options = made(name)  # at other addresses, those of `first` being taken
    planned, way = run(log, given, options, needs)
    assert way == {"planned"}
    with plans.ordinary_launches():
        ordinary, way = run(log, given, options, needs)
    assert way == {"ordinary"}

    assert planned == ordinary


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (lambda: tensors(torch.float32), {}),
        (lambda: tensors(gap=8), {}),
        (lambda: tensors(offset=1), {}),
        (lambda: (lambda q, k, v: (q, k, k))(*tensors()), {}),
        (lambda: (lambda q, k, v: (q[:, :, :-1], k, v))(*tensors()), {}),
        (tensors, {"scale": 0.0}),
        (tensors, {"scale": -0.0}),
        (tensors, {"window": (1, None)}),
        (tensors, {"key_lengths": ints(1, 1)}),
        (tensors, {"sink": torch.ones(4)}),
        (tensors, {"config": Configs(forward=LaunchConfig(block_m=16, block_n=32, num_warps=4, num_stages=1))}),
    ],
)
def test_a_call_that_differs_has_another_plan(log, given, options):
    forward(*tensors())
    forward(*tensors(), Options(scale=0.0 if str(options.get("scale")) == "-0.0" else 1.0))
    assert ways(log) == {"ordinary"}

    forward(*given(), Options(**options))
    assert ways(log) == {"ordinary"}
    forward(*given(), Options(**options))
    assert ways(log) == {"planned"}


def test_another_device_has_another_plan(log, monkeypatch):
    forward(*tensors())
    monkeypatch.setattr(plans, "_device", lambda tensors: 1)
    log.clear()
    forward(*tensors())

    assert ways(log) == {"ordinary"}


def test_plans_tell_gradients_and_longest_sequences_apart(log):
    q, k, v = tensors()
    o, lse2 = forward(q, k, v)
    for needs in [(True, *[False] * 5), NEEDS]:
        found = backward(o, q, k, v, o, lse2, needs=needs)
        assert (found.dk is not None) == needs[1]
    log.clear()
    given, _ = made("packed")
    for longest in (37, 38):
        forward(*given, Options(packed=Packed(ints(0, 3, 40), ints(0, 30, 70), longest, 40)))

    assert ways(log) == {"ordinary"}


def test_plans_tell_sizes_of_blocks_apart(log):
    live, (given, _) = torch.ones(1, 1, 2, 2, dtype=torch.bool), made("none")
    for keys in (48, 64):
        forward(*given, Options(blocks=BlockMask.from_bool(live, 32, keys)))

    assert ways(log) == {"ordinary"}


def test_an_absent_option_is_not_taken_for_its_default(log):
    for _ in range(2):
        attention(*tensors())
    assert "planned" in ways(log)
    with pytest.raises(ValueError, match="precision: expected one of"):
        attention(*tensors(), precision=None)


def test_the_oldest_plan_makes_room(log, monkeypatch):
    monkeypatch.setattr(plans, "LIMIT", 2)
    for sq in (40, 41, 42):
        forward(*tensors(sq=sq))
    log.clear()
    forward(*tensors(sq=42))
    assert len(plans._plans) == 2
    assert ways(log) == {"planned"}
    forward(*tensors(sq=40))

    assert ways(log) == {"ordinary"}


def test_a_plan_keeps_no_tensor(log):
    given = tensors()
    kept = [weakref.ref(x) for x in given]
    forward(*given)
    del given

    assert plans._plans
    assert all(x() is None for x in kept)
