import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from flashverify.case import DTYPES, POISONS, REGIMES, Case, Storage, Values, parse_case
from flashverify.case.memory.arena import GUARD
from flashverify.case.memory.materialize import materialize
from flashverify.case.modifiers.alibi import slope_values
from flashverify.case.modifiers.bias import bias_values
from flashverify.case.modifiers.modifier import FAR
from flashverify.case.modifiers.sink import sink_values
from flashverify.case.values.tensor_bits import tensor_bits

GOLDEN = Path(__file__).with_name("golden_features.txt")
FIELDS = ("key_lengths", "query_lengths", "cu_q", "cu_k", "bitmap", "blocks", "bias", "slopes", "sink")
FIELDS += ("relative_bias", "distance_buckets")
GOLDEN_NAMES = {"bitmap": "bitmask"}
"""What the golden digests call a tensor of another name."""
SHAPE = "batch=2 heads_q=4 heads_kv=2 seq_q=19 seq_k=37 dim_qk=24 dim_v=40"
PACKED = "heads_q=4 heads_kv=2 seq_q=19 seq_k=37 packed=0,5,5,17/0,9,20,33"
LINES = [
    *(f"{SHAPE} dtype={d} bias={b} seed={s}" for d in DTYPES for b, s in (("full", 5), ("head", 6), ("shared", 7))),
    *(f"{SHAPE} dtype={d} bias=head regime={r}" for d in DTYPES for r in ("zeros", "integers", "tiny", "subnormal")),
    *(f"{SHAPE} alibi=yes sink=yes regime={r} seed=9" for r in ("zeros", "integers", "normal")),
    f"{SHAPE.replace('heads_q=4', 'heads_q=24')} alibi=yes sink=yes seed=200",
    f"{SHAPE} bitmap=100,7 blocks=16,8,100,7",
    f"{SHAPE} bitmap=100,7,1 blocks=16,8,20,7,1,1",
    f"{SHAPE} klen=37,9 qlen=3,19 bias=full page_size=16 padding=nan",
    f"{SHAPE} klen=37,9 page_size=5 padding=-inf layout=bshd gap=3 offset=1 expand=yes",
    f"{SHAPE} page_size=64 padding=zero",
    f"{PACKED} bias=head padding=dirt",
    f"{PACKED} regime=one-hot",
    *(f"{SHAPE} alibi=wild sink=yes seed={seed} strided=yes padding=nan" for seed in (0, 9)),
    *(f"{SHAPE} relative_bias=8,20,both seed={seed}" for seed in (0, 5, 6, 7)),
    *(f"{SHAPE} relative_bias=32,128 regime={regime} strided=yes padding=nan" for regime in ("zeros", "integers")),
]


def tensors(problem):
    found = {name: getattr(problem, name) for name in FIELDS if getattr(problem, name) is not None}
    if problem.pages is not None:
        found |= {f"pages.{name}": getattr(problem.pages, name) for name in ("k", "v", "table")}
    return found | {name: getattr(problem, name) for name in ("q", "k", "v", "do")}


def golden_lines():
    lines = []
    for text in LINES:
        case = parse_case(f"fv1 {text}")
        digest = hashlib.sha256()
        for name, tensor in sorted(tensors(materialize(case)[0]).items()):
            word = {1: torch.int8, 2: torch.int16, 4: torch.int32}[tensor.itemsize]
            digest.update(GOLDEN_NAMES.get(name, name).encode() + tensor.contiguous().view(word).numpy().tobytes())
        lines.append(f"{digest.hexdigest()[:32]} {case}")
    return lines


def bits(tensor):
    return tensor.contiguous().view({1: torch.int8, 2: torch.int16, 4: torch.int32}[tensor.itemsize])


def test_every_optional_tensor_has_its_golden_bits():
    assert GOLDEN.read_text(encoding="ascii").splitlines() == golden_lines()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("regime", REGIMES)
def test_bias_and_sink_are_finite_and_exact_in_fp32(regime, dtype):
    for seed in (*range(8), 8, 9, 77):
        case = Case(heads_q=4, heads_kv=2, seq_q=9, seq_k=11, dtype=dtype, values=Values(regime=regime, seed=seed))
        case = dataclasses.replace(case, logits=dataclasses.replace(case.logits, bias="head", sink=True))
        for values in (bias_values(case), sink_values(case)):
            assert np.isfinite(values).all()
            assert (values == values.astype(np.float32)).all()
        assert torch.isfinite(materialize(case)[0].bias).all()


def test_biases_differ_in_kind_by_the_seed():
    def bias(seed):
        return bias_values(parse_case(f"fv1 seq_q=30 seq_k=30 bias=shared seed={seed}"))

    assert all(0.9 < bias(seed).std() < 1.1 for seed in range(4))
    assert not bias(4).any()
    assert 0.2 < (bias(5) == FAR).mean() < 0.3
    assert 6 < bias(6).std() < 10
    assert (np.abs(bias(7) - FAR) <= 16).all()


def test_sinks_dominate_vanish_or_are_ordinary():
    sinks = np.concatenate([sink_values(parse_case(f"fv1 heads_q=8 sink=yes seed={s}")) for s in range(8, 60)])

    assert {64.0, FAR, -FAR} < set(sinks.tolist())
    assert 0.4 < (np.abs(sinks) < 4).mean() < 0.6
    assert all(np.abs(sink_values(parse_case(f"fv1 heads_q=8 sink=yes seed={s}"))).max() < 4 for s in range(8))


def test_slopes_are_geometric():
    case = parse_case("fv1 heads_q=8 heads_kv=2 alibi=yes")

    assert [2.0**-n for n in range(1, 9)] == slope_values(case).tolist() == materialize(case)[0].slopes.tolist()
    assert torch.float32 == materialize(case)[0].slopes.dtype


def test_wild_slopes_have_both_signs_and_every_magnitude():
    slopes = [slope_values(parse_case(f"fv1 heads_q=6 alibi=wild seed={seed}")) for seed in range(60)]
    every = np.concatenate(slopes)

    assert (every == every.astype(np.float32)).all()
    assert 0.4 < (every < 0).mean() < 0.6
    assert 2.0**-8 <= np.abs(every).min() < 0.02
    assert 2.0**13 < np.abs(every).max() < 2.0**14
    assert len({tuple(values) for values in slopes}) == 60


@pytest.mark.parametrize("padding", ["nan", "max"])
def test_strided_vectors_have_padding_between_their_elements(padding):
    text = "batch=2 heads_q=3 heads_kv=1 seq_q=5 seq_k=4 alibi=yes sink=yes dlse=yes"
    dense, strided = (
        materialize(parse_case(f"fv1 {text} {more}"), padding=padding)[0] for more in ("", "strided=yes gap=3")
    )

    for name, strides in (("slopes", (2,)), ("sink", (2,)), ("dlse", (30, 10, 2))):
        tensor = getattr(strided, name)
        assert strides == tensor.stride()
        assert torch.equal(tensor, getattr(dense, name))
        between = tensor.as_strided((tensor.numel(),), (2,), tensor.storage_offset() + 1)
        assert (between.isnan() if padding == "nan" else between == torch.finfo(torch.float32).max).all()


@pytest.mark.parametrize(
    ("kind", "shape"), [("full", (2, 4, 9, 11)), ("head", (1, 4, 9, 11)), ("shared", (1, 1, 9, 11))]
)
def test_the_bias_is_a_strided_view(kind, shape):
    case = parse_case(
        f"fv1 batch=2 heads_q=4 heads_kv=2 seq_q=9 seq_k=11 bias={kind} layout=bshd gap=3 offset=1 dtype=bf16"
    )
    bias = materialize(case)[0].bias

    assert shape == tuple(bias.shape)
    assert torch.bfloat16 == bias.dtype
    assert (9 * shape[1] * 14, 14, shape[1] * 14, 1) == bias.stride()
    assert bias.data_ptr() % 16 == 2


@pytest.mark.parametrize("text", ["klen=11,4 qlen=9,5 batch=2", "packed=0,3,7/0,2,8", "qlen=6"])
def test_a_bias_outside_the_lengths_is_padding(text):
    for kind in ("full", "head", "shared"):
        case = parse_case(f"fv1 heads_q=2 seq_q=9 seq_k=11 bias={kind} {text}")
        clean, poisoned = (materialize(case, padding=p)[0].bias for p in ("zero", "nan"))
        for b in range(clean.shape[0]):
            rows, keys = case.rows_inside or (9,), case.keys_inside or (11,)
            row = rows[b] if len(rows) == clean.shape[0] else max(rows)
            key = keys[b] if len(keys) == clean.shape[0] else max(keys)
            assert torch.equal(clean[b, :, :row, :key], poisoned[b, :, :row, :key])
            assert poisoned[b, :, row:].isnan().all()
            assert poisoned[b, :, :, key:].isnan().all()


def test_what_lies_behind_the_last_packed_sequence_is_padding():
    problem, _ = materialize(parse_case(f"fv1 {PACKED} dlse=yes"), padding="nan")

    for name, last in (("q", 17), ("k", 33), ("v", 33), ("do", 17), ("dlse", 17)):
        tensor = getattr(problem, name)
        assert tensor[:, :, last:].isnan().all()
        assert not tensor[:, :, :last].isnan().any()
    assert problem.cu_q.tolist() == [0, 5, 5, 17]
    assert problem.cu_k.tolist() == [0, 9, 20, 33]
    assert (problem.max_q, problem.max_k) == (12, 13)


def test_one_hot_has_a_winner_in_every_packed_sequence():
    problem, _ = materialize(parse_case(f"fv1 {PACKED} regime=one-hot dtype=fp32"))
    s = (problem.q[:, :, :17].double() @ problem.k.double().repeat_interleave(2, 1).mT) * problem.scale

    for first, last in ((0, 9), (9, 20), (20, 33)):
        best = s[..., first:last].topk(2).values
        assert (best[..., 0] - best[..., 1] > 20).all()


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("storage", ["", "layout=bshd gap=3 offset=1", "expand=yes"])
@pytest.mark.parametrize("size", [1, 5, 16, 64])
def test_pages_hold_the_keys_in_another_order(size, storage, poison):
    case = parse_case(
        f"fv1 batch=3 heads_q=4 heads_kv=2 seq_k=37 klen=37,0,17 page_size={size} seed=4 dim_v=8 {storage}"
    )
    problem, arena = materialize(case, padding=poison)
    pages, entries = problem.pages, problem.pages.table.tolist()
    assert torch.int32 == pages.table.dtype
    assert (3, -(-37 // size)) == tuple(pages.table.shape)
    used = []
    for b, length in enumerate((37, 0, 17)):
        count = -(-length // size)
        used += entries[b][:count]
        beyond = entries[b][count:]
        assert all(e == 0 if poison == "zero" else e == -1 if poison == "-inf" else e >= 2**20 for e in beyond)
        for j in range(length):
            page, slot = entries[b][j // size], j % size
            assert torch.equal(bits(pages.k[page, slot]), bits(problem.k[b, :, j]))
            assert torch.equal(bits(pages.v[page, slot]), bits(problem.v[b, :, j]))
        if poison == "nan" and length % size:
            assert pages.k[entries[b][count - 1], length % size :].isnan().all()
    assert len(used) == len(set(used)) < pages.k.shape[0]
    assert size == 64 or used != sorted(used)
    free = [p for p in range(pages.k.shape[0]) if p not in used]
    assert poison != "nan" or pages.v[free].isnan().all()
    assert arena.damage() == []


def test_damage_of_every_optional_tensor_is_found():
    texts = (
        f"{SHAPE} klen=37,9 qlen=3,19 bias=full bitmap=128,1,1 blocks=4,4,128,1 alibi=yes sink=yes relative_bias=4,3 page_size=16",
        f"{PACKED} bias=head",
    )
    met = set()
    for text in texts:
        case = parse_case(f"fv1 {text}")
        for name in tensors(materialize(case)[0]):
            problem, arena = materialize(case, padding="nan")
            tensor = tensors(problem)[name]
            index = (0,) * tensor.dim()
            if tensor.dtype == torch.bool:
                tensor[index] = ~tensor[index]
            else:
                tensor[index] = 7
            before = tensor.as_strided((1,), (1,), tensor.storage_offset() - GUARD)
            before.fill_(False if tensor.dtype == torch.bool else 7)
            found = {(d.tensor, d.kind, d.index) for d in arena.damage()}
            assert {(name, "input", index), (name, "guard", (-GUARD,))} == found
            met.add(name)
    assert set(FIELDS) <= met


def test_optional_tensors_do_not_depend_on_padding_or_storage():
    case = parse_case(f"fv1 {SHAPE} bias=full bitmap=128,1 blocks=4,4,128,1 alibi=yes sink=yes page_size=16")
    expected = tensors(materialize(case)[0])
    for storage in (Storage(page_size=16, padding="nan"), Storage(layout="bshd", gap=3, offset=1, page_size=16)):
        other = tensors(materialize(dataclasses.replace(case, storage=storage))[0])
        for name in (n for n in expected if not n.startswith("pages")):
            assert torch.equal(bits(expected[name]), bits(other[name])), name


def test_other_tensors_keep_their_bits_whatever_is_added():
    plain, rich = (tensor_bits(parse_case(f"fv1 {SHAPE} {more}")) for more in ("", "bias=full sink=yes alibi=yes"))

    assert {"bias", "sink", "slopes"} == set(rich) - set(plain)
    assert all((plain[name] == rich[name]).all() for name in plain)


def test_dropout_keys_use_all_their_bits():
    problems = [materialize(parse_case(f"fv1 dropout=0.25 seed={seed}"))[0] for seed in range(64)]

    assert {0.25} == {p.dropout_p for p in problems}
    assert problems[0].dropout_seed == problems[0].dropout_offset == 0
    assert len({p.dropout_seed for p in problems}) == len({p.dropout_offset for p in problems}) == 64
    assert max(p.dropout_seed for p in problems) >> 63
    assert max(p.dropout_offset for p in problems) >> 31
    assert all(p.dropout_seed < 2**64 and p.dropout_offset < 2**32 for p in problems)
