import pytest
import torch

from flashverify_kernels import Configs, LaunchConfig, Options, Packed, backward, forward
from flashverify_kernels.aot import kernel_source
from flashverify_kernels.arguments import in_order
from flashverify_kernels.runtime import INTERPRETED
from flashverify_kernels.tiles import tiles
from flashverify_kernels.validation import check_call

pytestmark = pytest.mark.skipif(
    not INTERPRETED, reason="what a CPU shows; a GPU shows it by benchmarks/gpu_schedules.py"
)


def options(descriptors, **given):
    config = LaunchConfig(block_m=16, block_n=32, descriptors=descriptors)
    return Options(config=Configs(**dict.fromkeys(("forward", "dq", "dkdv"), config)), **given)


def tensors(sq, sk, heads=2, kv_heads=1, d=16, layout="bhsd", dtype=torch.float16):
    generator = torch.Generator().manual_seed(sq)

    def normal(h, s):
        return torch.randn((2, h, s, d) if layout == "bhsd" else (2, s, h, d), generator=generator).to(dtype)

    return normal(heads, sq), normal(kv_heads, sk), normal(kv_heads, sk), normal(heads, sq)


@pytest.mark.parametrize(
    ("sq", "sk", "given"),
    [
        (35, 39, {}),
        (35, 39, {"causal": "bottom-right", "layout": "bshd"}),
        (33, 70, {"window": (9, 4), "softcap": 2.0}),
        (1, 33, {"causal": "bottom-right"}),
    ],
)
def test_tiles_fetched_by_descriptors_give_the_bits_of_pointers(sq, sk, given):
    q, k, v, do = tensors(sq, sk, layout=given.get("layout", "bhsd"))
    found = []
    for descriptors in (False, True):
        chosen = options(descriptors, **given)
        result = forward(q, k, v, chosen)
        gradients = backward(do, q, k, v, result.o, result.lse2, chosen)
        found.append((result.o, result.lse2, gradients.dq, gradients.dk, gradients.dv))

    for by_pointer, by_descriptor in zip(*found, strict=True):
        assert torch.equal(by_pointer, by_descriptor)


def described(q, k, v, given=None):
    given = given or {}
    chosen = options(True, **given)
    call = check_call(q, k, v, chosen)
    found = {}
    for kind, names in (("forward", "q k v"), ("dkdv", "q k v")):
        given_tensors = dict(zip(names.split(), (q, k, v), strict=True)) | {"do": q}
        found |= tiles(call, chosen, kind, in_order(chosen, **given_tensors))
    return {name for name, x in found.items() if x is not None}


def test_descriptors_hold_the_tile_that_the_loop_walks():
    q, k, v, do = tensors(35, 39)
    chosen = options(True)
    call = check_call(q, k, v, chosen)

    keys = tiles(call, chosen, "forward", {"q": q, "k": k, "v": v})
    rows = tiles(call, chosen, "dkdv", {"q": q, "k": k, "v": v, "do": do})

    assert [(n, x.shape, x.block_shape) for n, x in keys.items()] == [
        ("k_tiles", [2, 1, 39, 16], [1, 1, 32, 16]),
        ("v_tiles", [2, 1, 39, 16], [1, 1, 32, 16]),
    ]
    assert [(n, x.shape, x.block_shape) for n, x in rows.items()] == [
        ("q_tiles", [2, 2, 35, 16], [1, 1, 16, 16]),
        ("do_tiles", [2, 2, 35, 16], [1, 1, 16, 16]),
    ]


def test_what_the_copy_engine_cannot_address_is_loaded_by_pointers():
    q, k, v, _ = tensors(20, 20)
    every = {"k_tiles", "v_tiles", "q_tiles", "do_tiles"}
    assert described(q, k, v) == every

    shifted = torch.cat([k.flatten()[:1], k.flatten()])[1:].view(k.shape)  # 2 bytes from a multiple of 16
    odd = torch.randn(2, 1, 20, 20, dtype=torch.float16)[..., :16]  # rows of 40 bytes
    same = k[:1].expand(2, 1, 20, 16)  # a step of 0
    for other in (shifted, odd, same):
        assert described(q, other, v) == {"q_tiles", "do_tiles"}
    wide, narrow = (tuple(x.to(t) for x in (q, k, v)) for t in (torch.float32, torch.float16))
    assert described(*wide) == set()
    assert described(*(x[..., :8] for x in narrow)) == set()


@pytest.mark.parametrize(
    "given",
    [
        {"key_lengths": torch.tensor([3, 20], dtype=torch.int32)},
        {"query_lengths": torch.tensor([3, 20], dtype=torch.int32)},
    ],
)
def test_rows_that_do_not_count_are_never_fetched(given):
    q, k, v, _ = tensors(20, 20)
    assert described(q, k, v, given) == set()


def test_packed_sequences_are_loaded_by_pointers():
    q, k, v, _ = (x[:1] for x in tensors(20, 20))
    cu = torch.tensor([0, 7, 20], dtype=torch.int32)
    assert described(q, k, v, {"packed": Packed(cu_q=cu, cu_k=cu, max_q=13, max_k=13)}) == set()


@pytest.mark.parametrize(
    ("kernel", "d", "given", "first"),
    [
        ("forward", 128, {}, "tensordesc<fp16[1, 1, 64, 128]>"),
        ("dq", 64, {"mask": "causal"}, "tensordesc<fp16[1, 1, 64, 64]>"),
        ("forward", 128, {"key_lengths": True}, "constexpr"),
        ("forward", 128, {"aligned": False}, "constexpr"),
        ("forward", 128, {"mask": "tree"}, "constexpr"),
        ("forward", 72, {}, "constexpr"),
        ("forward", 64, {}, "tensordesc<fp16[1, 1, 128, 64]>"),
        ("forward", 64, {"mask": "window"}, "constexpr"),
    ],
)
def test_what_is_compiled_without_a_gpu_is_what_a_long_call_would_launch(kernel, d, given, first):
    source = kernel_source(kernel, d=d, dv=d, dtype=torch.float16, **given)
    assert source.signature["k_tiles"] == source.signature["v_tiles"] == first


def test_a_tile_of_v_is_as_wide_as_the_kernel_has_it():
    config = LaunchConfig(block_m=16, block_n=32, descriptors=True)
    source = kernel_source("forward", d=32, dv=32, dtype=torch.float16, mask="bitmap", config=config)

    assert source.signature["k_tiles"] == "tensordesc<fp16[1, 1, 32, 32]>"
    assert source.signature["v_tiles"] == f"tensordesc<fp16[1, 1, 32, {source.constants['BLOCK_DV']}]>"
    assert source.constants["BLOCK_DV"] > 32
