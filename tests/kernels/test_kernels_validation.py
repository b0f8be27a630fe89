import math
import re

import pytest
import torch

from flashverify_kernels import Configs, LaunchConfig, Options, TreeMask, attention, backward, forward, supported
from flashverify_kernels.runtime import INTERPRETED


def qkv(sq=4, sk=6, heads=2, kv_heads=1, d=8, dv=16, batch=1, dtype=torch.float32):
    return (
        torch.zeros(batch, heads, sq, d, dtype=dtype),
        torch.zeros(batch, kv_heads, sk, d, dtype=dtype),
        torch.zeros(batch, kv_heads, sk, dv, dtype=dtype),
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"causal": "lower"}, ValueError, "causal: expected one of None, 'top-left', 'bottom-right', got 'lower'"),
        ({"causal": True}, ValueError, "causal: expected one of None, 'top-left', 'bottom-right', got True"),
        ({"layout": "sbhd"}, ValueError, "layout: expected one of 'bhsd', 'bshd', got 'sbhd'"),
        ({"precision": "fp8"}, ValueError, "precision: expected one of"),
        ({"scale": "1"}, TypeError, "scale: expected a number, got '1' (str)"),
        ({"scale": True}, TypeError, "scale: expected a number, got True (bool)"),
        ({"scale": math.nan}, ValueError, "scale: expected a finite fp32 number, got nan"),
        ({"scale": math.inf}, ValueError, "scale: expected a finite fp32 number, got inf"),
        ({"scale": 1e39}, ValueError, "scale: expected a finite fp32 number, got 1e+39"),
        ({"key_lengths": [6]}, TypeError, "key_lengths: expected a tensor, got list"),
        ({"tree": [-1]}, TypeError, "tree: expected a TreeMask, got list"),
        ({"config": LaunchConfig(block_m=16, block_n=16)}, TypeError, "config: expected Configs, got LaunchConfig"),
        ({"config": Configs(dq=(16, 16))}, TypeError, "config.dq: expected a LaunchConfig, got tuple"),
    ],
)
def test_options_are_refused_by_name_and_value(options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        attention(*qkv(), **options)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"block_m": 24, "block_n": 16}, "block_m: expected a power of two from 16 to 256, got 24"),
        ({"block_m": 8, "block_n": 16}, "block_m: expected a power of two from 16 to 256, got 8"),
        ({"block_m": 16, "block_n": 512}, "block_n: expected a power of two from 16 to 256, got 512"),
        ({"block_m": 16, "block_n": 16, "num_warps": 3}, "num_warps: expected a power of two from 1 to 16, got 3"),
        ({"block_m": 16, "block_n": 16, "num_stages": 0}, "num_stages: expected 1 to 8, got 0"),
    ],
)
@pytest.mark.parametrize("kind", ["forward", "dq", "dkdv"])
def test_launch_configurations_are_refused_by_field(kind, config, message):
    with pytest.raises(ValueError, match=re.escape(f"config.{kind}: {message}")):
        attention(*qkv(), config=Configs(**{kind: LaunchConfig(**config)}))


def test_a_launch_configuration_that_needs_too_much_shared_memory_is_refused():
    config = Configs(forward=LaunchConfig(block_m=256, block_n=256, num_stages=4))
    with pytest.raises(ValueError, match=r"forward: about .* bytes of shared memory needed, .* available"):
        attention(*qkv(d=256), config=config)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"k": torch.zeros(1, 1, 6, 16)}, ValueError, "k: expected shape (1, 1, 6, 8)"),
        ({"k": torch.zeros(1, 2, 6, 8)}, ValueError, "k: expected shape (1, 1, 6, 8)"),
        ({"v": torch.zeros(1, 1, 7, 16)}, ValueError, "k: expected shape (1, 1, 7, 8)"),
        ({"v": torch.zeros(2, 1, 6, 16)}, ValueError, "v: expected shape (1, 1, 6, 16)"),
        ({"q": torch.zeros(4, 8)}, ValueError, "q: expected 4 axes (bhsd), got shape (4, 8)"),
        ({"q": torch.zeros(1, 2, 4, 12), "k": torch.zeros(1, 1, 6, 12)}, ValueError, "multiple of 8 from 8 to 256"),
        ({"v": torch.zeros(1, 1, 6, 264)}, ValueError, "v: the head dimension must be a multiple of 8"),
        ({"k": torch.zeros(1, 0, 6, 8), "v": torch.zeros(1, 0, 6, 16)}, ValueError, "not a multiple of 0 kv heads"),
        ({"q": torch.zeros(1, 3, 4, 8), "k": torch.zeros(1, 2, 6, 8), "v": torch.zeros(1, 2, 6, 16)},
         ValueError, "q: 3 query heads are not a multiple of 2 kv heads"),
        ({"k": torch.zeros(1, 1, 6, 8).half()}, TypeError, "k: expected torch.float32 (that of q), got torch.float16"),
        ({"q": [1]}, TypeError, "q: expected a tensor, got list"),
        ({"v": torch.zeros(1, 1, 16, 6).transpose(2, 3)}, ValueError, "v: the last axis must have stride 1"),
        ({"k": torch.zeros(1, 1, 6, 8, device="meta")}, ValueError, "k: expected device cpu (that of q), got meta"),
    ],
)  # fmt: skip
@pytest.mark.skipif(not INTERPRETED, reason="the tensors are made for the CPU")
def test_inputs_are_refused_by_name_and_value(changed, error, message):
    inputs = {**dict(zip("qkv", qkv(), strict=True)), **changed}
    with pytest.raises(error, match=re.escape(message)):
        attention(**inputs)


def test_double_precision_is_refused():
    with pytest.raises(TypeError, match=r"q: torch.float64 is not one of float16, bfloat16, float32"):
        attention(*qkv(dtype=torch.float64))


def test_other_devices_are_refused():
    q = torch.zeros(1, 1, 4, 8, device="meta")
    with pytest.raises(ValueError, match="q: expected a CUDA or CPU tensor, got meta"):
        attention(q, q, q)


@pytest.mark.skipif(not INTERPRETED, reason="bf16 is right when compiled")
def test_interpreted_bf16_is_refused_unless_asked_for():
    inputs = qkv(dtype=torch.bfloat16)
    assert supported(torch.float16) is None
    assert supported(torch.bfloat16) is not None
    with pytest.raises(TypeError, match="interpreter computes bfloat16 wrongly"):
        attention(*inputs)
    assert attention(*inputs, allow_interpreted_bf16=True).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("lengths", "error", "message"),
    [
        (torch.tensor([6]), TypeError, "key_lengths: expected torch.int32, got torch.int64"),
        (torch.tensor([6, 6], dtype=torch.int32), ValueError, "key_lengths: expected shape (1,), got (2,)"),
        (torch.tensor([7], dtype=torch.int32), ValueError, "key_lengths: expected values from 0 to 6, got [7]"),
        (torch.tensor([-1], dtype=torch.int32), ValueError, "key_lengths: expected values from 0 to 6, got [-1]"),
    ],
)
@pytest.mark.skipif(not INTERPRETED, reason="values are not read on a GPU")
def test_key_lengths_are_checked(lengths, error, message):
    with pytest.raises(error, match=re.escape(message)):
        attention(*qkv(), key_lengths=lengths)


@pytest.mark.parametrize(
    ("parents", "error", "message"),
    [
        ([0], ValueError, "parents[0]: expected -1 (a root) or a node before 0, got 0"),
        ([-1, 2, 0], ValueError, "parents[1]: expected -1 (a root) or a node before 1, got 2"),
        ([-2], ValueError, "parents[0]: expected -1 (a root) or a node before 0, got -2"),
        ([-1, 0.0], TypeError, "parents[1]: expected a whole number, got 0.0 (float)"),
        (torch.zeros(2), TypeError, "parents: expected whole numbers [n], got torch.float32 (2,)"),
    ],
)
def test_parents_are_checked(parents, error, message):
    with pytest.raises(error, match=re.escape(message)):
        TreeMask.from_parents(parents)


def test_a_tree_must_fit_its_problem(tree):
    with pytest.raises(ValueError, match="tree: expected one node per query, 4, got 3"):
        attention(*qkv(), tree=tree([-1] * 3))
    with pytest.raises(ValueError, match=r"tree: .* got only 3 keys"):
        attention(*qkv(sk=3), tree=tree([-1] * 4))
    with pytest.raises(ValueError, match="bits: expected an int32 tensor"):
        TreeMask(torch.zeros(4, 4, dtype=torch.int32))


def test_the_backward_checks_its_own_inputs():
    q, k, v = qkv()
    o, lse2 = forward(q, k, v)
    with pytest.raises(ValueError, match=re.escape("do: expected shape (1, 2, 4, 16), got (1, 2, 4, 8)")):
        backward(q, q, k, v, o, lse2)
    with pytest.raises(TypeError, match=re.escape("do: expected torch.float32, got torch.float16")):
        backward(o.half(), q, k, v, o, lse2)
    with pytest.raises(ValueError, match=re.escape("lse2: expected shape (1, 2, 4), got (1, 2, 3)")):
        backward(o, q, k, v, o, lse2[:, :, :3])
    with pytest.raises(ValueError, match=re.escape("dlse: expected shape (1, 2, 4), got (1, 1, 4)")):
        backward(o, q, k, v, o, lse2, Options(), dlse=lse2[:, :1])
