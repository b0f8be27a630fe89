"""What the subject `bundled` declares on a Hopper GPU, which is pretended."""

import dataclasses

import pytest
import torch

from flashverify.case.case import Case, Logits, Mask, Storage
from flashverify.case.masks.blocks import Blocks
from flashverify.case.masks.packed import Packed
from flashverify.case.memory.materialize import materialize
from flashverify.subjects import bundled, bundled_hopper
from flashverify.subjects.bundled import Bundled
from flashverify.subjects.ring.subject import BundledRing
from flashverify_kernels import validation
from flashverify_kernels.runtime import INTERPRETED

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="tensors on the CPU")

CASE = Case(batch=2, heads_q=4, heads_kv=2, seq_q=40, seq_k=70, dim_qk=128, dim_v=128)
PACKED = Packed(cu_q=(0, 20, 40), cu_k=(0, 0, 70))


@pytest.fixture
def subject(monkeypatch):
    """A subject whose kernels are compiled for a Hopper GPU, as far as it declares."""
    monkeypatch.setattr(validation, "INTERPRETED", False)
    monkeypatch.setattr(bundled, "hopper_capability", lambda module: (9, 0))
    monkeypatch.setattr(bundled, "hopper_is_drawn", lambda module: True)
    found = Bundled()
    found._interpreted = False
    return found


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({}, 128),
        ({"dim_qk": 64, "dim_v": 64}, 128),
        ({"mask": Mask(window=(3, 5))}, 128),
        ({"mask": Mask(window=(3, None))}, 128),
        ({"mask": Mask(blocks=Blocks(rows=128, keys=256, live=128, seed=1))}, 128),
        ({"mask": Mask(blocks=Blocks(rows=128, keys=64, live=128, seed=1))}, 64),
        ({"mask": Mask(packed=PACKED), "batch": 1}, 128),
        ({"mask": Mask(packed=PACKED), "batch": 1, "dim_qk": 64, "dim_v": 64}, 64),
        ({"mask": Mask(packed=PACKED), "batch": 1, "storage": Storage(offset=1)}, 64),
        ({"storage": Storage(layout="bshd")}, 128),
        ({"storage": Storage(gap=8)}, 128),
        ({"storage": Storage(offset=8)}, 128),
        ({"storage": Storage(gap=3)}, 64),
        ({"storage": Storage(offset=1)}, 64),
        ({"storage": Storage(expand=True)}, 64),
        ({"storage": Storage(expand=True), "heads_q": 2, "heads_kv": 1}, 64),
        ({"logits": Logits(sink=True)}, 64),
        ({"seq_k": 0}, 64),
        ({"seq_q": 5}, 64),
        ({"dim_v": 64}, 64),
        ({"launch": (("block_m", 16), ("block_n", 32))}, 32),
        ({"launch": (("block_m", 64), ("block_n", 64), ("hopper", 1))}, 64),
    ],
)
def test_the_declared_tile_of_keys_is_the_one_that_is_launched(subject, changes, keys):
    case = dataclasses.replace(CASE, **changes)
    problem, _ = materialize(case)
    tensors = (subject._view(case, x) for x in (problem.q, problem.k, problem.v))
    call = validation.check_call(*tensors, subject._options(problem), capability=(9, 0))

    assert subject._block_n(case) == call.configs["forward"].block_n == keys


def test_ranks_compute_in_fp32_and_have_the_usual_tiles(subject):
    ring = BundledRing()
    ring._interpreted = False

    assert (ring._block_n(CASE), subject._block_n(CASE)) == (64, 128)


def test_the_kernels_are_drawn_both_ways(subject):
    launches = {dict(launch)["hopper"] for launch in subject.supports.launches()}
    asked = dataclasses.replace(CASE, launch=(("block_m", 64), ("block_n", 128), ("hopper", 1)))

    assert launches == {0, 1}
    assert subject.supports.refusal(asked) is None
    assert subject._configs(asked).forward.hopper is True
    for tile in ({"block_m": 32}, {"block_n": 32}):  # which a call that they do not take would compute otherwise
        smaller = dataclasses.replace(asked, launch=tuple(sorted((dict(asked.launch) | tile).items())))
        assert "hopper: True goes with block_m and block_n of 64 or more, got 32" in subject.supports.refusal(smaller)
    plain = dataclasses.replace(CASE, launch=asked.launch[:2])
    assert subject.supports.refusal(plain) is None
    assert subject._configs(plain).forward.hopper is False
    assert "belong together" in subject.supports.refusal(dataclasses.replace(CASE, launch=asked.launch[2:]))


def test_elsewhere_they_are_no_parameter():
    assert [name for name, _ in Bundled().supports.launch] == ["block_m", "block_n"]
    assert bundled_hopper.hopper_capability(Bundled()._module) is None


def test_a_package_of_mutants_has_neither_unless_it_says_so(subject):
    assert Bundled("flashverify_kernels", hopper=False)._capability() is None
    assert "hopper" not in dict(Bundled("flashverify_kernels", hopper=False).supports.launch)


@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (10, 0)])
def test_they_are_drawn_on_a_hopper_gpu_alone(monkeypatch, capability):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    modules = {"runtime": type("runtime", (), {"INTERPRETED": False}), "hopper": Bundled()._module("hopper")}

    assert bundled_hopper.hopper_is_drawn(modules.__getitem__) is (capability == (9, 0))
    modules["runtime"].INTERPRETED = True
    assert not bundled_hopper.hopper_is_drawn(modules.__getitem__)
