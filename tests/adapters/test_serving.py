"""Adapters for the signatures of xformers, vLLM, SGLang and FlashInfer, on kernels in plain torch: right, and with a defect each."""

import pytest

from flashverify import adapters, judge_case, parse_case
from flashverify.adapters.declaration import accepts
from tests.adapters.attention import CHECKS
from tests.adapters.serving import (
    LOG2E,
    MASKS,
    Decode,
    Prefill,
    Ragged,
    decode,
    extend,
    memory_efficient,
    prefill,
    prefix,
    single,
    unified,
)

HERE = {"device": "cpu", "dtypes": ("fp32",)}

SIZES = "heads_q=4 heads_kv=2 dim_qk=16 dim_v=16 dtype=fp32"
PAGED = f"batch=3 seq_k=40 page_size=16 kept_pages=yes backward=no {SIZES}"
KERNELS = {
    "xformers": (memory_efficient, lambda kernel: adapters.xformers_attention(kernel, MASKS, **HERE)),
    "unified": (unified, lambda kernel: adapters.vllm_unified_attention(kernel, freed_pages=False, **HERE)),
    "prefix": (prefix, lambda kernel: adapters.vllm_prefix_prefill(kernel, freed_pages=False, **HERE)),
    "decode": (decode, lambda kernel: adapters.sglang_decode(kernel, **HERE)),
    "extend": (extend, lambda kernel: adapters.sglang_extend(kernel, **HERE)),
    "prefill": (prefill, lambda kernel: adapters.sglang_prefill(kernel, **HERE)),
    "planned decode": (Decode, lambda kernel: adapters.flashinfer_decode(kernel, kv_layout="HND", **HERE)),
    "planned prefill": (Prefill, lambda kernel: adapters.flashinfer_prefill(kernel, freed_pages=False, **HERE)),
    "ragged": (Ragged, lambda kernel: adapters.flashinfer_ragged(kernel, **HERE)),
    "single": (single, lambda kernel: adapters.flashinfer_single(kernel, **HERE)),
}
CASES = {
    "xformers": (
        f"fv1 seq_q=12 seq_k=15 packed=0,5,9/0,6,13 causal=bottom-right padding=nan {SIZES}",
        f"fv1 batch=2 seq_q=5 seq_k=9 causal=top-left bias=full {SIZES}",
        f"fv1 batch=2 seq_q=5 seq_k=9 causal=bottom-right {SIZES}",
    ),
    "unified": (f"fv1 seq_q=3 klen=40,0,17 causal=bottom-right window=9,* softcap=30 alibi=yes sink=yes {PAGED}",),
    "prefix": (f"fv1 seq_q=3 klen=40,3,17 causal=bottom-right window=9,* alibi=yes {PAGED}",),
    "decode": (f"fv1 seq_q=1 klen=40,0,17 softcap=30 {PAGED}".replace(" kept_pages=yes", ""),),
    "extend": (f"fv1 seq_q=3 klen=40,3,17 causal=bottom-right softcap=30 {PAGED}".replace(" kept_pages=yes", ""),),
    "prefill": (f"fv1 seq_q=12 seq_k=12 packed=0,5,9/0,5,9 causal=bottom-right backward=no padding=nan {SIZES}",),
    "planned decode": (f"fv1 seq_q=1 klen=40,0,17 softcap=30 {PAGED}".replace(" kept_pages=yes", ""),),
    "planned prefill": (f"fv1 seq_q=3 klen=40,0,17 causal=bottom-right window=9,* softcap=30 {PAGED}",),
    "ragged": (f"fv1 seq_q=12 seq_k=11 packed=0,5,5,9/0,4,6,9 causal=bottom-right backward=no padding=nan {SIZES}",),
    "single": (f"fv1 seq_q=5 seq_k=9 causal=bottom-right window=3,* softcap=30 backward=no {SIZES}",),
}


def failures(name, kernel, text):
    mine, case = KERNELS[name][1](kernel), parse_case(text)
    assert mine.supports.refusal(case) is None
    return judge_case(mine, case, checks=CHECKS).failures


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in CASES.items() for text in texts])
def test_a_right_kernel_of_the_signature_is_right(name, text):
    assert failures(name, KERNELS[name][0], text) == ()


def scaled(function, name, position=None):
    """With its scale one percent too large."""

    def wrong(*args, **given):
        if name in given:
            given[name] = given[name] * 1.01
        return function(*args, **given)

    wrong.__signature__ = __import__("inspect").signature(function)
    return wrong


WRONG = {
    "xformers": scaled(memory_efficient, "scale"),
    "unified": scaled(unified, "softmax_scale"),
    "prefix": scaled(prefix, "sm_scale"),
    "decode": scaled(decode, "sm_scale"),
    "extend": scaled(extend, "sm_scale"),
    "prefill": scaled(prefill, "sm_scale"),
    "single": lambda *args, **given: (single(*args, **given)[0], single(*args, **given)[1] / LOG2E),
}
for planned in (Decode, Prefill, Ragged):
    WRONG[next(name for name, (kernel, _) in KERNELS.items() if kernel is planned)] = type(
        "Natural", (planned,), {"run": lambda self, *args, **given: self.halved(*args, **given)}
    )
    Decode.halved = lambda self, *args, **given: tuple(
        x / factor for x, factor in zip(type(self).__mro__[1].run(self, *args, **given), (1, LOG2E), strict=True)
    )


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_defect_is_found(name):
    assert {v.check for v in failures(name, WRONG[name], CASES[name][0])} == {"accuracy"}


def test_what_the_signature_lacks_is_not_declared():
    def plain(q, k, v, out, cu_seqlens_q, seqused_k, softmax_scale, block_table): ...

    mine = adapters.vllm_unified_attention(plain)

    assert (mine.supports.masks, mine.supports.logits) == (("causal", "key_lengths"), ())
    assert not accepts(plain, "softcap")
    assert accepts(lambda **given: None, "softcap")


@pytest.mark.parametrize("name", ["prefix", "extend"])
def test_a_sequence_with_fewer_keys_than_new_tokens_is_not_given(name):
    kernel, wire = KERNELS[name]
    text = CASES[name][0].replace("klen=40,3,17", "klen=40,2,17")

    assert wire(kernel).supports.refusal(parse_case(text)) == "a sequence of 2 keys, and 3 new ones"
