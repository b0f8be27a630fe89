"""A planned launch gives the function of C what Triton's own launcher would: of two releases, and through Triton where it is unknown."""

import sys
from collections import namedtuple
from types import ModuleType, SimpleNamespace

import pytest
import torch
import triton

from flashverify_kernels.launchers import Place, launcher_of
from flashverify_kernels.plan_key import NoPlanError
from flashverify_kernels.planned_launch import Values

View = namedtuple("View", "ptr, row")
ADDRESS, ELSEWHERE, STREAM = 4096, 8192, 7


def kernel_function(x, view, tiles, count, SIZE):
    """Stands in for the Python function of a kernel."""


KERNEL = SimpleNamespace(fn=kernel_function, arg_names=("x", "view", "tiles", "count", "SIZE"))


class Tensor(torch.Tensor):
    def data_ptr(self):
        return ADDRESS


class Descriptor:
    block_shape, shape, strides, padding = (16, 64), (40, 64), (64, 1), "nan"

    def __init__(self, base):
        self.base = base


@pytest.fixture
def module(monkeypatch):
    """What there is of Triton's driver for NVIDIA's GPUs."""
    made = ModuleType("pretended_driver_of_nvidia")
    utils = SimpleNamespace(fill_tma_descriptor_tiled=lambda *given: ("map", *given))
    made.triton = SimpleNamespace(runtime=SimpleNamespace(driver=SimpleNamespace(active=SimpleNamespace(utils=utils))))
    made.TMA_DTYPE_DEVICE_TO_HOST = {8: 10}
    made.PyKernelArg, made.ARG_KERNEL = (lambda **given: ("argument", *given.values())), 1
    made.make_tensordesc_arg = lambda x, meta: [x.base if meta is None else "map", *x.shape, *x.strides]
    made.CudaLauncher = type("CudaLauncher", (), {"__module__": made.__name__})
    monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.setattr(triton, "__version__", "3.7.1")
    return made


META = {"swizzle": 3, "elem_size": 2, "elem_type": 8, "block_size": (16, 64), "fp4_padded": False}


def compiled_by(module, launch=print, *, meta=META, scratch=0, **more):
    run = module.CudaLauncher()
    vars(run).update(launch=launch, launch_cooperative_grid=False, launch_pdl=True)
    vars(run).update(global_scratch_size=scratch, profile_scratch_size=0, **more)
    kinds = {
        "x": "*fp16",
        "view": ("*fp16", "i64"),
        "tiles": "tensordesc<fp16[16, 64]>",
        "count": "i32",
        "SIZE": "constexpr",
    }
    return SimpleNamespace(
        run=run,
        function=99,
        packed_metadata=(4, 1, 0),
        metadata=SimpleNamespace(tensordesc_meta=[meta] if meta else []),
        src=SimpleNamespace(signature=kinds),
    )


def launched_elsewhere(compiled):
    """What is called, and with what, when a tensor lies at another address than the one that the plan was made with."""
    x = torch.zeros(1).as_subclass(Tensor)
    values = Values([ADDRESS])
    made = values.launch(KERNEL, compiled, 5, (x, View(x, 64), Descriptor(x), 3, 128), {"num_warps": 4})
    found = [STREAM, ELSEWHERE, *values.rest]
    for n, step in values.steps:
        found[n] = step(found)
    return made.launch, made.arguments(found)


FILLED = ("map", ELSEWHERE, 3, 2, 10, (16, 64), [40, 64], [64, 1], 1)
SIZES = (40, 64, 64, 1)
NAMED = {"arg_annotations": ["of", "records"], "kernel_signature": b"12345678901"[:9]}


def test_a_release_that_takes_one_tuple_has_single_arguments_without_constants(module):
    function, arguments = launched_elsewhere(compiled_by(module, **NAMED))

    assert function is print
    expected = (ELSEWHERE, ELSEWHERE, 64, FILLED, *SIZES, 3)
    ways = (99, False, True, (4, 1, 0), *[None] * 5)
    assert arguments == (5, 1, 1, STREAM, *ways, [("argument", None, 1)] * 9, NAMED["kernel_signature"], expected)


def test_a_release_that_takes_arguments_one_by_one_has_them_as_they_are(module, monkeypatch):
    monkeypatch.setattr(triton, "__version__", "3.6.0")
    function, arguments = launched_elsewhere(compiled_by(module))

    assert function is print
    ways = (99, False, True, None, None, (4, 1, 0), None, None, None)
    assert arguments == (5, 1, 1, STREAM, *ways, ELSEWHERE, (ELSEWHERE, 64), FILLED, *SIZES, 3, 128)


def test_a_gpu_without_maps_of_tiles_has_the_address(module):
    _, arguments = launched_elsewhere(compiled_by(module, meta=None, **NAMED))

    assert arguments[-1] == (ELSEWHERE, ELSEWHERE, 64, ELSEWHERE, *SIZES, 3)


def test_what_makes_descriptors_of_arguments_first_is_passed_over(module):
    def wrapped(launcher):
        def inner(*args):
            return launcher(*args)

        return inner

    assert launcher_of(compiled_by(module, wrapped(print), **NAMED)).call is print


def test_arguments_that_the_function_of_c_does_not_expect_have_no_plan(module):
    with pytest.raises(NoPlanError):
        launched_elsewhere(compiled_by(module, **NAMED | {"kernel_signature": b"12345678"}))


@pytest.mark.parametrize("padded", [True, False])
def test_a_descriptor_that_is_filled_in_another_way_has_no_plan(module, padded, monkeypatch):
    if not padded:
        monkeypatch.setattr(Descriptor, "round_f32_to_tf32", True, raising=False)
    with pytest.raises(NoPlanError):
        launched_elsewhere(compiled_by(module, meta=META | {"fp4_padded": padded}, **NAMED))


@pytest.mark.parametrize("change", ["release", "scratch", "function", "class"])
def test_a_launcher_that_is_not_known_launches_itself(module, change, monkeypatch):
    if change == "release":
        monkeypatch.setattr(triton, "__version__", "3.8.0")
    launch = (lambda *_: None) if change == "function" else print
    compiled = compiled_by(module, launch, scratch=int(change == "scratch"), **NAMED)
    if change == "class":
        monkeypatch.setattr(module, "CudaLauncher", type("CudaLauncher", (), {}))
    function, arguments = launched_elsewhere(compiled)

    assert function is compiled.run
    *first, descriptor, count, size = arguments
    ways = (99, (4, 1, 0), None, None, None)
    assert (*first, count, size) == (5, 1, 1, STREAM, *ways, ELSEWHERE, (ELSEWHERE, 64), 3, 128)
    assert isinstance(descriptor, Descriptor)
    assert descriptor.base.data_ptr() == ELSEWHERE
    assert isinstance(descriptor.base, Place)
