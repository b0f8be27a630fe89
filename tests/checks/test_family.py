"""Every axis of the family, judged on the bundled kernels in the interpreter with every check."""

import pytest

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.interpreter import faithful
from flashverify.subjects import load_subject
from tests.fast_tier import fast_one_in

_DENSE = "batch=2 heads_q=4 heads_kv=2 seq_q=40 seq_k=70 dim_qk=32 dim_v=16 seed=3 padding=nan"
_PACKED = "heads_q=4 heads_kv=2 seq_q=40 seq_k=70 dim_qk=32 dim_v=32 seed=3 padding=nan packed=0,10,10,35/0,30,50,66"
_DECODE = "batch=2 heads_q=4 heads_kv=2 seq_q=3 seq_k=200 dim_qk=32 dim_v=32 seed=3 backward=no padding=nan"

CASES = {
    "bundled": [
        f"{_DENSE} window=5,3",
        f"{_DENSE} window=10,* causal=bottom-right klen=60,7 dlse=yes",
        f"{_DENSE} qlen=20,0 klen=70,1",
        f"{_DENSE} bitmap=128,5,1",
        f"{_DENSE} bitmap=30,5 causal=top-left",
        f"{_DENSE} blocks=16,16,128,3",
        f"{_DENSE} blocks=32,16,0,3,1 causal=bottom-right",
        f"{_DENSE} softcap=30",
        f"{_DENSE} softcap=1 regime=logits-1e2",
        f"{_DENSE} alibi=yes causal=bottom-right",
        f"{_DENSE} bias=full klen=50,70",
        f"{_DENSE} bias=shared dtype=bf16",
        f"{_DENSE} bias=head sink=yes gap=3",
        f"{_DENSE} sink=yes causal=top-left dlse=yes",
        f"{_DENSE} dropout=0.5",
        f"{_DENSE} dropout=0.1 bias=full sink=yes softcap=30 causal=top-left window=20,3",
        _PACKED,
        f"{_PACKED} causal=bottom-right window=6,*",
        f"{_PACKED} bitmap=120,3,1 dtype=bf16",
        f"{_PACKED} dropout=0.5 alibi=yes sink=yes",
        "heads_q=2 seq_q=9 seq_k=70 dim_qk=32 dim_v=32 packed=0,4,4,8/0,30,50,60 tree=-1,0,0,1,-1,0,1,1",
        # the slope of a saturated softcap under the error of tf32, e^50 times the exact one and more
        "heads_q=2 seq_q=24 seq_k=5 dim_qk=256 dim_v=8 dtype=fp32 precision=tf32 scale=10000 softcap=1 regime=v-positive seed=121",
        "heads_q=2 seq_q=73 seq_k=24 dim_qk=32 dim_v=8 dtype=fp32 precision=tf32 softcap=1 regime=logits-1e5 seed=245",
        # dsink of permuted heads is bitwise the same
        "heads_q=6 heads_kv=2 seq_q=8 dim_qk=8 dim_v=8 dtype=bf16 bias=shared sink=yes seed=1",
    ],
    "bundled-decode": [
        _DECODE,
        f"{_DECODE} klen=7,150 causal=bottom-right page_size=16",
        f"{_DECODE} page_size=5 launch=n_splits:7 window=50,2",
        f"{_DECODE} page_size=64 launch=n_splits:3 tree=-1,0,0",
        f"{_DECODE} dtype=bf16 layout=bshd launch=n_splits:2 klen=0,1",
        "dim_qk=256 dim_v=256 dtype=fp32 backward=no seq_k=40 launch=n_splits:2",
    ],
    "bundled-latent": [
        "batch=2 heads_q=4 seq_q=3 seq_k=40 dim_qk=40 dim_v=32 klen=40,9 causal=bottom-right gap=8 padding=nan kv=shared backward=no",
        "heads_q=3 seq_q=2 seq_k=30 dim_qk=24 dim_v=16 dtype=bf16 page_size=5 launch=n_splits:3 kv=shared backward=no",
    ],
    "bundled-selected": [
        "batch=2 heads_q=4 heads_kv=2 seq_q=5 seq_k=20 dim_qk=16 dim_v=16 klen=20,9 selected=5,1,4,200,3,1,1 padding=nan dlse=yes",
        "heads_q=4 heads_kv=2 seq_q=9 seq_k=30 dim_qk=16 dim_v=24 dtype=bf16 causal=bottom-right selected=9,4,1,160,2",
    ],
    "bundled-chunked": [
        "batch=2 heads_q=4 heads_kv=2 seq_q=30 seq_k=70 dim_qk=32 dim_v=32 seed=3 backward=no klen=30,0 launch=chunks:5",
        "heads_q=2 seq_q=30 seq_k=70 dim_qk=32 dim_v=32 dtype=bf16 backward=no layout=bshd",
    ],
}


# The fast tests take the first case of each subject and every eighth, `make test` every fourth: the corpus has every axis too.
EVERY = [
    param
    for name, texts in CASES.items()
    for param in fast_one_in(8, (pytest.param(name, text, id=f"{name}-{n}") for n, text in enumerate(texts)), kept=8)
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "text"), EVERY)
def test_a_case_of_the_family_passes_every_check(name, text):
    case = parse_case(f"fv1 {text}")
    with faithful():
        result = judge_case(load_subject(name), case, Plan.run())

    assert not result.unsupported
    assert [(v.check, v.output, v.message) for v in result.failures] == []
    assert {stats.output for stats in result.stats} >= {"o", "lse"}
