"""Launch plans: the same arguments reach the launcher, and whatever checks or launches read is part of the key. Nothing is launched."""

import contextlib
import dataclasses
import sys
import weakref
from types import SimpleNamespace

import pytest
import torch

from flashverify_kernels import (
    Configs,
    LaunchConfig,
    Options,
    attention,
    backward,
    decode,
    forward,
    launch,
    merge,
    plans,
)
from flashverify_kernels.packed import Packed

KERNELS = {
    **dict.fromkeys(("forward_kernel", "delta_kernel", "dq_kernel", "dkdv_kernel"), launch),
    "decode_kernel": sys.modules[decode.__module__],
    "merge_kernel": sys.modules[merge.__module__],
}


class Kernel:
    """Stands in for a compiled kernel: keeps what it is launched with, addresses in place of tensors, and says by which way."""

    pre_run_hooks = ()

    def __init__(self, kernel, log):
        self.fn, self.arg_names, self._log = kernel.fn, kernel.arg_names, log

    def __getitem__(self, grid):
        def ordinary(*args, **kwargs):
            self._log.append(("ordinary", grid[0], [addresses(kwargs[name]) for name in self.arg_names]))
            return SimpleNamespace(run=self._run, function=0, packed_metadata=0)

        return ordinary

    def _run(self, x, y, z, stream, function, packed, metadata, enter, leave, *args):
        assert (y, z, metadata, enter, leave) == (1, 1, None, None, None)
        self._log.append(("planned", x, [addresses(a) for a in args]))


def addresses(value):
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    if isinstance(value, tuple):
        return tuple(addresses(x) for x in value)
    if hasattr(value, "block_shape"):
        return ("descriptor", *((x.name, addresses(getattr(value, x.name))) for x in dataclasses.fields(value)))
    return value


@pytest.fixture
def log(monkeypatch):
    found = []
    for name, module in KERNELS.items():
        monkeypatch.setattr(module, name, Kernel(getattr(module, name), found))
    monkeypatch.setattr(plans, "INTERPRETED", False)
    monkeypatch.setattr(plans, "_modes", lambda: 0)  # the corrected interpreter has one
    monkeypatch.setattr(plans, "_device", lambda tensors: 0)
    monkeypatch.setattr(plans, "_plans", {})
    monkeypatch.setattr(plans, "driver", SimpleNamespace(active=SimpleNamespace(get_current_stream=lambda device: 0)))
    return found


def tensors(dtype=torch.float16, *, gap=0, offset=0, sq=40, layout="bhsd", batch=2):
    def one(heads, length):
        memory = torch.zeros(batch * heads * length * (64 + gap) + offset, dtype=dtype)
        x = memory[offset:].view(batch, heads, length, 64 + gap)[..., :64]
        return x if layout == "bhsd" else x.transpose(1, 2).contiguous()

    return one(4, sq), one(2, 70), one(2, 70)


def ways(log):
    found = [way for way, *_ in log]
    log.clear()
    return set(found)


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


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


@pytest.mark.parametrize(
    "options",
    [
        {"scale": True},
        {"scale": "1"},
        {"causal": ["top-left"]},
        {"window": (1.0, 1)},
        {"window": [1, True]},
        {"softcap": -1.0},
        {"precision": None},
        {"layout": None},
        {"config": LaunchConfig(block_m=16, block_n=32)},
        {"config": Configs(forward=Configs())},
        {"config": Configs(forward=LaunchConfig(block_m=[16], block_n=32))},
        {"bias": 1.0},
        {"key_lengths": [1, 1]},
        {"packed": 1},
    ],
)
def test_bad_options_have_their_errors_beside_plans_of_good_ones(log, options):
    forward(*tensors(), Options(scale=1.0))
    forward(*tensors(), Options(window=(1, 1)))
    with plans.ordinary_launches(), pytest.raises((TypeError, ValueError)) as expected:
        forward(*tensors(), Options(**options))
    with pytest.raises(expected.type) as found:
        forward(*tensors(), Options(**options))

    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("change", [{"num_warps": 4.0}, {"descriptors": 1}, {"num_stages": True}])
def test_a_configuration_with_an_equal_value_of_another_type_has_no_plan_of_the_first(log, change):
    config = {"block_m": 16, "block_n": 32, "num_warps": 4, "num_stages": 1, "descriptors": True}
    for _ in range(2):
        forward(*tensors(), Options(config=Configs(forward=LaunchConfig(**config))))
    assert "planned" in ways(log)
    with contextlib.suppress(TypeError, ValueError):
        forward(*tensors(), Options(config=Configs(forward=LaunchConfig(**config | change))))

    assert "planned" not in ways(log)


@pytest.mark.parametrize("change", [torch.Tensor.to_sparse, lambda x: x.to("meta"), torch.Tensor.tolist])
@pytest.mark.parametrize("number", range(3))
def test_a_tensor_without_strides_or_address_and_none_at_all_have_their_errors_beside_plans(log, change, number):
    forward(*tensors())
    given = list(tensors())
    given[number] = change(given[number])
    with plans.ordinary_launches(), pytest.raises((TypeError, ValueError, RuntimeError)) as expected:
        forward(*given)
    with pytest.raises(expected.type) as found:
        forward(*given)

    assert str(found.value) == str(expected.value)


def test_an_absent_option_is_not_taken_for_its_default(log):
    for _ in range(2):
        attention(*tensors())
    assert "planned" in ways(log)
    with pytest.raises(ValueError, match="precision: expected one of"):
        attention(*tensors(), precision=None)


def test_a_tensor_of_another_class_has_no_plan(log):
    class Other(torch.Tensor):
        pass

    for _ in range(3):
        forward(*(x.as_subclass(Other) for x in tensors()))

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


def test_a_misaligned_output_goes_the_ordinary_way(log, monkeypatch):
    forward(*tensors())
    log.clear()
    count = []

    def misaligned(shape, strides, **kwargs):
        count.append(shape)
        return torch.empty(shape.numel() + 1, **kwargs)[1:].view(shape)

    monkeypatch.setattr(torch, "empty_strided", misaligned)
    forward(*tensors())

    assert count
    assert ways(log) == {"ordinary"}


def test_a_hook_of_the_kernel_goes_the_ordinary_way(log, monkeypatch):
    forward(*tensors())
    log.clear()
    monkeypatch.setattr(Kernel, "pre_run_hooks", (print,))
    forward(*tensors())

    assert ways(log) == {"ordinary"}


@pytest.mark.parametrize("more", [{"bogus": 1}, {"dlse": None}, {"options": Options()}])
def test_a_call_with_unknown_arguments_is_refused(log, more):
    forward(*tensors(), Options())
    with pytest.raises(TypeError):
        forward(*tensors(), Options(), **more)


def test_a_gradient_that_no_launch_writes_has_no_plan(log):
    q, k, v = tensors()
    options = Options(sink=torch.ones(4))
    o, lse2 = forward(q, k, v, options)
    log.clear()
    for _ in range(3):
        backward(o, q, k, v, o, lse2, options)

    assert ways(log) == {"ordinary"}


@pytest.mark.parametrize("hook", ["launch_enter_hook", "launch_exit_hook"])
def test_somebody_who_watches_launches_sees_them(log, monkeypatch, hook):
    forward(*tensors())
    log.clear()
    monkeypatch.setattr(getattr(plans.knobs.runtime, hook), "calls", [print])
    forward(*tensors())

    assert ways(log) == {"ordinary"}


@pytest.mark.parametrize(("place", "value"), [((plans, "_OWN"), False), ((plans.JITFunction, "run"), print)])
def test_a_copy_and_another_run_of_launches_have_none(log, monkeypatch, place, value):
    forward(*tensors())
    log.clear()
    monkeypatch.setattr(*place, value)
    forward(*tensors())

    assert ways(log) == {"ordinary"}


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


DECODING = {
    "one split": lambda: {"n_splits": 1},
    "splits": lambda: {"n_splits": 3, "causal": "bottom-right"},
    "chosen": dict,
    "lengths": lambda: {"key_lengths": ints(7, 70), "n_splits": 2},
    "terms": lambda: {"softcap": 5.0, "alibi_slopes": torch.ones(4), "scale": 0.25},
    "bias": lambda: {"bias": torch.zeros(2, 4, 2, 70, dtype=torch.float16)},
    "pages": lambda: {"block_table": ints(*range(10)).view(2, 5), "key_lengths": ints(7, 70)},
    "layout": lambda: {"layout": "bshd", "n_splits": 2},
    "config": lambda: {"config": LaunchConfig(block_m=16, block_n=32, num_warps=4, num_stages=1), "n_splits": 2},
}


def decoded(log, name):
    """A decoding of new tensors: what is launched, apart from addresses of what only launches know, and by which ways."""
    options = DECODING[name]()
    q, k, v = tensors(sq=2, layout=options.get("layout", "bhsd"))
    if "block_table" in options:
        k, v = (torch.zeros(10, 16, 2, 64, dtype=torch.float16) for _ in "kv")
    log.clear()
    o, lse = decode(q, k, v, return_lse=True, **options)
    known = {x.data_ptr(): n for n, x in enumerate((q, k, v, o, lse, *options.values())) if isinstance(x, torch.Tensor)}

    def named(value):
        if isinstance(value, (tuple, list)):
            return [named(x) for x in value]
        if isinstance(value, int) and value > 2**32:
            return known.get(value, "a part")
        return value

    return [named(entry[1:]) for entry in log], {entry[0] for entry in log}


@pytest.mark.parametrize("name", DECODING)
def test_a_decoding_has_a_plan_of_both_its_launches(log, name):
    first, _ = decoded(log, name)
    planned, way = decoded(log, name)
    assert way == {"planned"}
    with plans.ordinary_launches():
        ordinary, way = decoded(log, name)
    assert way == {"ordinary"}

    assert planned == ordinary == first
    assert len(planned) == {"one split": 1, "splits": 2, "config": 2}.get(name, len(planned))


def test_a_decoding_with_a_sink_has_no_plan_and_one_that_wants_gradients_is_refused(log):
    q, k, v = tensors(sq=2)
    for _ in range(2):
        decode(q, k, v, sink=torch.ones(4))
        assert ways(log) == {"ordinary"}
    decode(q, k, v)
    with pytest.raises(ValueError, match="decode has no backward"):
        decode(q.requires_grad_(), k, v)


@pytest.mark.parametrize("function", [decode, attention])
def test_slopes_that_want_a_gradient_are_refused_where_slopes_have_a_plan(log, function):
    q, k, v = tensors(sq=2)
    for _ in range(2):
        function(q, k, v, alibi_slopes=torch.ones(4))
    assert "planned" in ways(log)
    with pytest.raises(ValueError, match="slopes have no gradient"):
        function(q, k, v, alibi_slopes=torch.ones(4).requires_grad_())
