"""Arguments of decoding that are not accepted."""

import math
from dataclasses import replace

import pytest
import torch

from flashverify_kernels import TreeMask
from flashverify_kernels.decode import decode
from tests.kernels.decode_reference import SMALL, ints


class Arguments(dict):
    def __init__(self):
        zeros = torch.zeros
        super().__init__(q=zeros(2, 4, 3, 8), k=zeros(2, 2, 9, 8), v=zeros(2, 2, 9, 8))


PAGES = {"k": (5, 4, 2, 8), "v": (5, 4, 2, 8)}
BAD = [
    ({"q": None}, TypeError, "q: expected a tensor, got NoneType"),
    ({"k": (2, 9, 8)}, ValueError, r"k: expected 4 axes, got shape \(2, 9, 8\)"),
    ({"k": (2, 2, 9, 16)}, ValueError, r"k: expected shape \(2, 2, 9, 8\).*got \(2, 2, 9, 16\)"),
    ({"q": (2, 3, 3, 8)}, ValueError, "q: 3 query heads are not a multiple of 2 kv heads"),
    ({"q": (2, 4, 3, 12), "k": (2, 2, 9, 12)}, ValueError, "q: the head dimension must be a multiple of 8.*got 12"),
    ({"n_splits": 0}, ValueError, "n_splits: expected 1 to 1024, got 0"),
    ({"n_splits": 2.0}, TypeError, r"n_splits: expected a whole number, got 2.0 \(float\)"),
    ({"causal": "bottom"}, ValueError, "causal: expected one of None, 'top-left', 'bottom-right', got 'bottom'"),
    ({"window": (-1, None)}, ValueError, r"window: .*got \(-1, None\)"),
    ({"layout": "sbhd"}, ValueError, "layout: expected one of 'bhsd', 'bshd', got 'sbhd'"),
    ({"precision": "fp8"}, ValueError, "precision: expected one of 'ieee', 'tf32', 'tf32x3', got 'fp8'"),
    ({"scale": math.inf}, ValueError, "scale: expected a finite fp32 number, got inf"),
    ({"key_lengths": ints(9, 10)}, ValueError, r"key_lengths: expected values from 0 to 9, got \[9, 10\]"),
    ({"key_lengths": ints(9)}, ValueError, r"key_lengths: expected shape \(2,\), got \(1,\)"),
    ({"tree": TreeMask.from_parents([-1])}, ValueError, "tree: expected the bits of 3 nodes"),
    (
        {"tree": TreeMask.from_parents([-1, 0, 1]), "causal": "top-left"},
        ValueError,
        "tree: expected causal='bottom-right' or None, .*got causal='top-left'",
    ),
    (
        {"tree": TreeMask.from_parents([-1, 0, 1]), "window": (2, 0)},
        ValueError,
        r"tree: expected .*got causal=None, window=\(2, 0\)",
    ),
    ({"tree": [0]}, TypeError, "tree: expected a TreeMask or a Bitmap, got list"),
    ({"config": 16}, TypeError, "config: expected a LaunchConfig, got int"),
    (
        {"config": replace(SMALL, block_m=8)},
        ValueError,
        "config: block_m: expected a power of two from 16 to 256, got 8",
    ),
    ({**PAGES, "block_table": [[0], [1]]}, TypeError, "block_table: expected a tensor, got list"),
    ({**PAGES, "block_table": ints(0, 1)}, ValueError, r"block_table: expected 2 axes .*got shape \(2,\)"),
    (
        {**PAGES, "block_table": ints(0, 1, 2)[:, None]},
        ValueError,
        r"block_table: expected shape \(2, 1\), got \(3, 1\)",
    ),
    ({**PAGES, "block_table": torch.zeros(2, 1)}, TypeError, "block_table: expected torch.int32, got torch.float32"),
    ({**PAGES, "v": (5, 4, 3, 8), "block_table": ints(0, 1)[:, None]}, ValueError, r"k: expected shape \(5, 4, 3, 8\)"),
]


def test_bad_input_is_named():
    for change, error, message in BAD:
        arguments = Arguments()
        for name, value in change.items():
            value = torch.zeros(value) if name in "qkv" and isinstance(value, tuple) else value
            arguments[name] = value.to(arguments["q"].device) if isinstance(value, torch.Tensor) else value
        q, k, v = (arguments.pop(name) for name in "qkv")
        with pytest.raises(error, match=message):
            decode(q, k, v, **arguments)


@pytest.mark.skipif(
    "not __import__('flashverify_kernels').runtime.INTERPRETED", reason="values are checked on the CPU alone"
)
def test_a_page_that_does_not_exist_is_named():
    q, k = torch.zeros(2, 4, 1, 8), torch.zeros(5, 4, 2, 8)
    table = torch.tensor([[0, 9], [5, 9]], dtype=torch.int32)
    with pytest.raises(ValueError, match=r"block_table: expected pages from 0 to 4, got \[5\] for b = 1"):
        decode(q, k, k, block_table=table, key_lengths=ints(4, 3))


def test_it_says_that_it_has_no_backward(make_case):
    case = make_case(heads=2, sq=1, sk=9)
    case.k.requires_grad_()
    with pytest.raises(ValueError, match=r"k: decode has no backward; .*torch.no_grad\(\).*attention"):
        decode(case.q, case.k, case.v)
    with torch.no_grad():
        assert decode(case.q, case.k, case.v).shape == case.q.shape
