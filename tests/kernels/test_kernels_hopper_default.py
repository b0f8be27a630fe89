"""Which calls have the kernels for Hopper GPUs by default: the GPU is pretended, and nothing is compiled."""

from dataclasses import replace

import pytest
import torch

from flashverify_kernels import Options, attention, forward, hopper, launch, launch_config, validation
from flashverify_kernels.runtime import INTERPRETED, compute_capability
from flashverify_kernels.validation import check_call

KINDS = ("forward", "dq", "dkdv")
ON_HOPPER = (9, 0)

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="tensors on the CPU")


@pytest.fixture
def compiled(monkeypatch):
    """What is chosen where kernels are compiled."""
    monkeypatch.setattr(validation, "INTERPRETED", False)


def tensors(d=128, dtype=torch.bfloat16, offset=0, gap=0, batch=2):
    def one(heads, length):
        memory = torch.zeros(batch * heads * length * (d + gap) + offset + 8, dtype=dtype)
        return memory[offset:][: batch * heads * length * (d + gap)].view(batch, heads, length, d + gap)[..., :d]

    return one(4, 40), one(2, 70), one(2, 70)


def chosen(given, capability=ON_HOPPER, dtype=None, **options):
    options = Options(allow_interpreted_bf16=True, **options)
    return check_call(*given, options, capability=capability, dtype=dtype).configs


def usual(d=128, dtype=torch.bfloat16):
    return {kind: launch_config(kind, d=d, dv=d, dtype=dtype, mask="none", sq=40) for kind in KINDS}


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("gap", [0, 8])
def test_a_call_that_they_take_has_them(compiled, d, dtype, gap):
    found = chosen(tensors(d, dtype, gap=gap))

    assert {kind: config.hopper for kind, config in found.items()} == {"forward": True, "dq": d == 128, "dkdv": True}
    assert found["forward"].block_n == 128
    assert replace(found["dq"], hopper=False) == usual(d, dtype)["dq"]


@pytest.mark.parametrize("capability", [None, (8, 0), (8, 9), (10, 0), (12, 0)])
def test_no_other_gpu_has_them(compiled, capability):
    assert chosen(tensors(), capability) == usual()


@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v: tensors(offset=1),
        lambda q, k, v: tensors(gap=4),
        lambda q, k, v: (q, k[:, :1].expand(-1, 2, -1, -1), v),
        lambda q, k, v: (q[:1], k[:1].expand(1, -1, -1, -1), v[:1].as_strided(v[:1].shape, (0, *v.stride()[1:]))),
        lambda q, k, v: (q, k[:, :, :0], v[:, :, :0]),
    ],
    ids=["address", "rows", "broadcast heads", "broadcast batch of one", "no keys"],
)
def test_tensors_that_the_copy_engine_cannot_address_have_the_usual_configuration(compiled, change):
    assert chosen(change(*tensors())) == usual()


def test_a_sink_and_an_o_in_fp32_have_the_usual_configuration(compiled):
    assert chosen(tensors(), sink=torch.zeros(4)) == usual()
    assert chosen(tensors(), dtype=torch.float32) == usual()


@pytest.mark.parametrize("gap", [0, 4, 8])
def test_a_view_of_a_sequence_or_a_head_has_the_configuration_of_the_whole(compiled, gap):
    q, k, v = tensors(gap=gap)
    whole = chosen((q, k, v))

    assert whole["forward"].hopper is (gap != 4)
    for part in (tuple(x[1:] for x in (q, k, v)), (q[:, 2:], k[:, 1:], v[:, 1:])):
        assert chosen(part) == whole


def test_a_triton_without_gluon_has_the_usual_configuration(compiled, monkeypatch):
    monkeypatch.setattr(hopper.importlib, "import_module", lambda name: exec("raise ImportError(name)"))
    hopper._importable.cache_clear()
    try:
        assert not hopper.available(ON_HOPPER)
        assert chosen(tensors()) == usual()
    finally:
        hopper._importable.cache_clear()


def test_interpreted_kernels_never_have_them():
    assert compute_capability(tensors()[0]) is None
    assert chosen(tensors()) == chosen(tensors(), None)
    assert not any(config.hopper for config in chosen(tensors()).values())


def test_a_launch_asks_with_its_gpu_and_with_the_dtype_of_o(compiled, monkeypatch):
    asked = []
    monkeypatch.setattr(launch, "compute_capability", lambda x: ON_HOPPER)
    monkeypatch.setattr(hopper, "takes", lambda call, options, kind, x: asked.append(call.configs[kind].hopper))
    options = Options(allow_interpreted_bf16=True)

    found = forward(*tensors(), options)
    forward(*tensors(), options, dtype=torch.float32)
    launch.backward(found.o, *tensors(), found.o, found.lse2, options)

    assert asked == [True, False, True, True]


def test_a_wrong_argument_is_named_before_a_gpu_is_asked():
    q, k, v = tensors(dtype=torch.float16)
    with pytest.raises(TypeError, match="q: expected a tensor, got list"):
        attention([q], k, v)
