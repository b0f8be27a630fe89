"""The regimes built against one defect each, edits of bias and sink, and pages that a window has freed."""

import dataclasses

import numpy as np
import pytest
import torch

from flashverify.case import DTYPES, Case, Edit, Logits, Mask, Storage, Values, parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.case.memory.paging import page_table
from flashverify.case.values.adversarial import ADVERSARIAL
from flashverify.case.values.fill import Fill
from flashverify.case.values.regimes import regime_values
from flashverify.case.values.tensor_bits import tensor_bits
from flashverify.errors import UsageError
from flashverify.formats import FORMATS

BASE = Case(batch=2, heads_q=4, heads_kv=2, seq_q=19, seq_k=37, dim_qk=24, dim_v=40)


def values(regime, dtype="fp32", seed=3, **axes):
    case = dataclasses.replace(BASE, dtype=dtype, values=Values(regime=regime, seed=seed), **axes)
    found = regime_values(Fill(case))
    k = np.repeat(found["k"], case.heads_q // case.heads_kv, axis=1)
    return case.softmax_scale * (found["q"] @ k.swapaxes(2, 3)), found


@pytest.mark.parametrize("scale", [None, -0.5, 4.0])
def test_logits_do_what_their_regime_says(scale):
    s, _ = values("descending", scale=scale)
    tiles = np.stack([s[..., start : start + 16].max(axis=3) for start in (0, 16, 32)])
    assert (np.diff(tiles, axis=0) < -1).all()

    s, _ = values("spikes", scale=scale)
    assert {0, 15, 16, 31, 32, 36} == set(s.argmax(axis=3).ravel().tolist())
    assert (np.sort(s, axis=3)[..., -1] - np.median(s, axis=3) > 20).all()

    s, _ = values("near-ties-1e4", scale=scale)
    assert (s.min(axis=3) > s.max(axis=3) * (1 - 2.0**-20)).all()
    assert s.max() > 4000

    s, _ = values("weight-edges", scale=scale)
    depth = (s - s.max(axis=3, keepdims=True)) / np.log(2)
    assert np.abs(depth - np.round(depth)).max() < 1e-3
    assert {-126, -149} < set(np.round(depth).astype(int).ravel().tolist())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "keys"), [(300, 300), (60, 2000), (2000, 60)])
def test_few_keys_take_all_the_weight_of_a_row(rows, keys, dtype):
    for seed in (4, 5):
        s, found = values("few-keys", dtype, seed=seed, batch=1, seq_q=rows, seq_k=keys, dim_qk=64)
        near = s > s.max(axis=3, keepdims=True) - 150
        shared = near & (near.sum(axis=3, keepdims=True) > 3)

        assert near.sum(axis=3).max() < 60
        assert 5 < shared.sum(axis=2).max() < 60
        assert (shared.any(axis=3).sum(axis=2) > min(rows, keys) / 2).all()
        assert all((array * 16 == np.rint(array * 16)).all() for array in found.values())
        assert (s.max(axis=3) > -20).all() if seed == 4 else (s.max(axis=3) < -150).all()


@pytest.mark.parametrize(("seed", "sentinel"), list(enumerate((-1e4, -1e5, -1e6, -1e9, -(2.0**60), -(2.0**110)))))
def test_every_logit_lies_below_the_sentinel(seed, sentinel):
    s, _ = values("sentinels", seed=seed)

    assert s.max() < sentinel
    assert s.min() > 8 * sentinel


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_weights_lie_halfway_between_two_numbers(dtype):
    s, found = values("weight-ties", dtype, scale=0.5)
    quarter = 2.0 ** -(FORMATS[dtype].mantissa + 2)

    steps = (1 - np.exp(s - s.max(axis=3, keepdims=True))) / quarter

    odd = steps[steps > 0.5]
    assert odd.size
    assert np.abs(odd - np.round(odd)).max() < 0.02
    assert set(np.round(odd) % 2) == {1.0}
    assert (found["v"] >= 0.125).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_outputs_do_what_their_regime_says(dtype):
    s, found = values("subnormal-o", dtype)
    weights = np.exp(s - s.max(axis=3, keepdims=True))
    o = weights / weights.sum(axis=3, keepdims=True) @ np.repeat(found["v"], 2, axis=1)
    assert (np.abs(o) < 2.0 ** FORMATS[dtype].emin).mean() > 0.9

    _, found = values("delta-cancels", dtype)
    dp = found["do"] @ np.repeat(found["v"], 2, axis=1).swapaxes(2, 3)
    assert (np.ptp(dp, axis=3) < 0.2 * np.abs(dp).min(axis=3)).all()


def test_every_adversarial_regime_is_drawn_and_can_be_expanded():
    expanded = dataclasses.replace(
        BASE, storage=Storage(expand=True), grad=dataclasses.replace(BASE.grad, do="expanded")
    )
    for regime in ADVERSARIAL:
        bits = tensor_bits(dataclasses.replace(expanded, values=Values(regime=regime)))

        assert (bits["do"].shape, bits["k"].shape[1]) == ((1, 1, 1, 1), 1)


EDITED = dataclasses.replace(BASE, dtype="fp16", logits=Logits(bias="head", sink=True, alibi=True))


def test_modifiers_are_edited_in_their_own_dtype():
    edits = (
        Edit("bias", (0, 3, 18, 36), -8192.0),
        Edit("sink", (2, 0, 0, 0), 1 + 2.0**-20),
        Edit("slopes", (1, 0, 0, 0), -1.875 * 2.0**127),
    )
    before = tensor_bits(EDITED)
    after = tensor_bits(dataclasses.replace(EDITED, values=Values(edits=edits)))

    assert after["bias"][0, 3, 18, 36] == 0xF000
    assert after["sink"][2] == 0x3F800008
    assert after["slopes"][1] == 0xFF700000
    assert [int((before[name] != after[name]).sum()) for name in ("bias", "sink", "slopes")] == [1, 1, 1]
    assert parse_case(str(dataclasses.replace(EDITED, values=Values(edits=edits)))).values.edits == edits


@pytest.mark.parametrize(
    ("case", "edit", "named"),
    [
        (BASE, ("bias", (0, 0, 0, 0), 1.0), "edit tensor='bias' is not accepted: one that the case has: q, k, v, do"),
        (EDITED, ("bias", (1, 0, 0, 0), 1.0), "edit index"),
        (EDITED, ("sink", (0, 1, 0, 0), 1.0), "edit index"),
        (
            BASE,
            ("slopes", (0, 0, 0, 0), 1.0),
            "edit tensor='slopes' is not accepted: one that the case has: q, k, v, do",
        ),
        (EDITED, ("slopes", (0, 0, 1, 0), 1.0), "edit index"),
        (EDITED, ("slopes", (0, 0, 0, 0), float("inf")), "edit of slopes=inf is not accepted: a finite number"),
        (EDITED, ("sink", (0, 0, 0, 0), float("nan")), "edit of sink=nan is not accepted: a finite number"),
    ],
)
def test_an_edit_of_what_is_not_there_is_refused(case, edit, named):
    with pytest.raises(UsageError, match=named):
        dataclasses.replace(case, values=Values(edits=(Edit(*edit),)))


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("window=3,0 causal=bottom-right", [(37 - 2 - 3) // 5, (17 - 2 - 3) // 5]),
        ("window=3,0", [0, 0]),
        ("window=*,0 causal=bottom-right", [0, 0]),
        ("causal=bottom-right", [0, 0]),
    ],
)
def test_pages_before_every_window_hold_padding_and_have_no_entry(text, first):
    case = parse_case(f"fv1 batch=2 seq_q=2 seq_k=37 klen=37,17 page_size=5 padding=nan seed=1 backward=no {text}")
    problem, _ = materialize(case)
    table = page_table(case, "nan")

    assert first == list(table.first)
    for b, (start, end) in enumerate(zip(table.first, table.used, strict=True)):
        assert (table.entries[b, :start] >= 2**20).all()
        for number in range(start, end):
            count = min(5, case.keys_inside[b] - 5 * number)
            held = problem.pages.k[table.entries[b, number], :count]
            assert torch.equal(held, problem.k[b, :, 5 * number : 5 * number + count].transpose(0, 1))
    assert torch.isfinite(problem.pages.k).all(dim=(1, 2, 3)).sum() <= sum(table.used) - sum(table.first)
    everything = page_table(dataclasses.replace(case, mask=Mask(key_lengths=(37, 17))), "nan")
    kept = [(b, n) for b in range(2) for n in range(table.first[b], table.used[b])]
    assert all(table.entries[place] == everything.entries[place] for place in kept)
