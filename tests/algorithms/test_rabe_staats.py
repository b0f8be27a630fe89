"""Appendix B.5 by counting: the algorithm of Rabe and Staats beside FlashAttention's, and defects of it that are found."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.interpreter import count
from flashverify.subjects import load_subject
from flashverify_kernels.algorithms import Setting, paper_backward, paper_forward, rabe_staats_forward

CASE = (
    "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=20 seq_k=70 dim_qk=16 dim_v=24 klen=70,40 causal=bottom-right backward=no"
)


def failures():
    case = parse_case(f"{CASE} launch=block_m:16,block_n:16")
    return {v.output for v in judge_case(load_subject("rabe-staats"), case, Plan.only("accuracy", case)).failures}


def inputs(n, d=16):
    return [torch.randn(1, 1, n, d, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]


def counted(launch):
    """(what it returns, traffic by argument, multiply-adds)."""
    with count() as launches:
        found = launch()
    traffic = {}
    for one in launches:
        for name, x in one.traffic.items():
            loads, stores = traffic.get(name, (0, 0))
            traffic[name] = loads + x.loads, stores + x.stores
    return found, traffic, sum(one.multiply_adds for one in launches)


@pytest.mark.parametrize(("n", "block"), [(64, 16), (64, 32), (128, 16)])
def test_it_keeps_an_output_of_every_block_where_flashattention_keeps_one(n, block):
    d, blocks = 16, n // block
    q, k, v, _ = inputs(n, d)
    setting = Setting(scale=0.25, block_m=16, block_n=block)

    found, theirs, products = counted(lambda: rabe_staats_forward(q, k, v, setting))
    _, ours, same = counted(lambda: paper_forward(q, k, v, setting))

    assert products == same == 2 * n * n * d
    assert found.kept[0].numel() == theirs["part_o_ptr"][1] == blocks * n * d  # every element once: so much memory
    assert theirs["part_o_ptr"][0] == blocks * n * d
    assert theirs["part_m_ptr"][1] == theirs["part_l_ptr"][1] == blocks * n
    # the same elements are written again and again: memory for one copy, and as many accesses
    assert ours["o_ptr"] == (blocks * n * d, blocks * n * d)


def test_its_memory_grows_with_the_square_of_the_length_at_a_block_of_one_size():
    sizes = [rabe_staats_forward(*inputs(n)[:3], Setting(scale=0.25, block_n=16)).kept[0].numel() for n in (64, 128)]

    assert sizes[1] / sizes[0] == 4


def summary(q, k, v):
    s = q @ k.mT
    m = s.amax(-1, keepdim=True).detach()
    p = (s - m).exp()
    return p @ v, m, p.sum(-1, keepdim=True)


def checkpointed(q, k, v, block, **options):
    """Their attention: what a block leaves is recomputed in the backward."""
    parts = [
        checkpoint(summary, q, x, y, use_reentrant=False, **options)
        for x, y in zip(k.split(block, -2), v.split(block, -2), strict=True)
    ]
    o, m, row_sum = (torch.stack(x) for x in zip(*parts, strict=True))
    factor = (m - m.amax(0)).exp()
    return (factor * o).sum(0) / (factor * row_sum).sum(0)


@pytest.mark.parametrize(("early_stop", "expected"), [(False, 6), (True, 5)])
def test_its_backward_recomputes_the_output_of_every_block_too_unless_the_checkpoint_stops_early(early_stop, expected):
    n, d = 64, 16
    q, k, v, do = inputs(n, d)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    square = n * n * d

    o = checkpointed(*leaves, 16, early_stop=early_stop)
    with FlopCounterMode(display=False) as flops:
        o.backward(do)
    setting = Setting(scale=1.0, block_m=16, block_n=16)
    found = paper_forward(q, k, v, setting)
    gradients, _, products = counted(lambda: paper_backward(do, q, k, v, found, setting))

    assert flops.get_total_flops() == 2 * expected * square
    assert products == 5 * square
    for mine, leaf in zip(gradients, leaves, strict=True):
        torch.testing.assert_close(mine, leaf.grad, rtol=1e-3, atol=1e-4)


def test_nothing_fails_as_it_is():
    assert not failures()


@pytest.mark.parametrize(
    ("kernel", "before", "after", "outputs"),
    [
        ("combination_kernel", "tl.exp2(part_m - finite(m))", "tl.exp(part_m - finite(m))", {"o", "lse"}),
        ("combination_kernel", "factor * tl.load(", "tl.load(", {"o", "lse"}),
        ("combination_kernel", "acc += factor[:, None] * load(", "acc += load(", {"o"}),
        ("combination_kernel", "m + tl.log2(divisor)", "part_m + tl.log2(divisor)", {"lse"}),
        (
            "combination_kernel",
            "for block in range(blocks):\n        part = block",
            "for block in range(1, blocks):\n        part = block",
            {"o", "lse"},
        ),
        ("summary_kernel", "head(k_ptr, n // group", "head(k_ptr, n % group", {"o", "lse"}),
    ],
    ids=[
        "another base",
        "sums not rescaled",
        "outputs not rescaled",
        "the last maximum",
        "a block left out",
        "keys of another head",
    ],
)
def test_a_defect_is_found(edited, kernel, before, after, outputs):
    edited(kernel, before, after)

    assert failures() == outputs
