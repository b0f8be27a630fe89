import math
import random
from itertools import pairwise

import pytest
import torch

from flashverify_kernels import Bitmap, TreeMask, attention, attention_varlen
from tests.fast_tier import fast_one_in

LENGTHS = [(0, 0), (33, 50), (0, 20), (17, 0), (1, 40), (40, 40), (0, 0)]
"""Queries and keys of each sequence: empty ones first, last and between."""


def cumulative(lengths):
    total = [0]
    for n in lengths:
        total.append(total[-1] + n)
    return torch.tensor(total, dtype=torch.int32)


CU_Q, CU_K = (cumulative(n) for n in zip(*LENGTHS, strict=True))
SPARE = 7
"""Rows past the last sequence, full of NaN."""


def draw(rows, heads, d, seed, dtype):
    rng = torch.Generator("cpu").manual_seed(seed)
    x = torch.randn(rows + SPARE, heads, d, generator=rng, device="cpu").to(dtype)
    x[rows:] = math.nan
    return x.to(torch.zeros(()).device)


def packed(dtype=torch.float32, heads=4, kv_heads=2, d=16, dv=24, **options):
    """Inputs, outputs and gradients of all sequences at once; LSE as `[T, H]`."""
    rows, keys = int(CU_Q[-1]), int(CU_K[-1])
    q, k, v = draw(rows, heads, d, 0, dtype), draw(keys, kv_heads, d, 1, dtype), draw(keys, kv_heads, dv, 2, dtype)
    do, dlse = draw(rows, heads, dv, 3, dtype), draw(rows, heads, 1, 4, torch.float32)[..., 0].T
    inputs = [x.requires_grad_() for x in (q, k, v)]
    device = q.device
    o, lse = attention_varlen(*inputs, CU_Q.to(device), CU_K.to(device), max_q=40, max_k=50, **options)
    torch.autograd.backward([o, lse], [do, dlse])
    grads = [x.grad for x in inputs]
    return (q, k, v, do, dlse.T), (o.detach(), lse.detach().T, *grads)


def sequences(tensors, columns):
    """The parts of each sequence; `columns` says whose rows a tensor has, q's or k's."""
    for s in range(len(LENGTHS)):
        yield [
            x.detach()[(cu := CU_Q if c == "q" else CU_K)[s] : cu[s + 1]] for x, c in zip(tensors, columns, strict=True)
        ]


def alone(parts, **options):
    """One sequence through `attention`."""
    q, k, v, do, dlse = parts
    inputs = [x[None].requires_grad_() for x in (q, k, v)]
    o, lse = attention(*inputs, layout="bshd", return_lse=True, **options)
    torch.autograd.backward([o, lse], [do[None], dlse.T[None]])
    return [o[0], lse[0].T, *(x.grad[0] for x in inputs)]


def agree(inputs, outputs, options_of, **options):
    for s, (parts, got) in enumerate(zip(sequences(inputs, "qkkqq"), sequences(outputs, "qqqkk"), strict=True)):
        for name, x, y in zip(
            ("o", "lse", "dq", "dk", "dv"), got, alone(parts, **options_of(s), **options), strict=True
        ):
            assert torch.equal(x, y), (s, name)


@pytest.mark.parametrize("dtype", fast_one_in(2, [torch.float32, torch.float16], ids=str, kept=2))
@pytest.mark.parametrize("causal", [None, "top-left", "bottom-right"])
@pytest.mark.parametrize("window", [None, (9, 5)])
def test_packed_sequences_are_each_alone_bit_for_bit(blocks, dtype, causal, window):
    options = {"causal": causal, "window": window, "config": blocks(16, 32)}
    agree(*packed(dtype, **options), lambda _: {}, **options)


def test_a_packed_sequence_agrees_with_the_definition(make_case, see, blocks):
    (q, k, v, do, dlse), outputs = packed(torch.float16, causal="bottom-right", config=blocks(16, 32))
    case = make_case()
    for s, parts in enumerate(sequences((q, k, v, do, dlse), "qkkqq")):
        if min(LENGTHS[s]) == 0:
            continue
        case.q, case.k, case.v, case.do = (x.transpose(0, 1)[None] for x in parts[:4])
        case.dlse = parts[4].T[None]
        case.check(see(1, *LENGTHS[s], "bottom-right"), causal="bottom-right", config=blocks(16, 32))
    assert bool(outputs[0][: int(CU_Q[-1])].isfinite().all())


def test_trees_of_packed_sequences(blocks, monkeypatch):
    lengths = [(0, 5), (33, 50), (0, 0), (40, 40), (1, 7)]
    monkeypatch.setitem(globals(), "LENGTHS", lengths)
    for name, column in (("CU_Q", 0), ("CU_K", 1)):
        monkeypatch.setitem(globals(), name, cumulative(n[column] for n in lengths))
    rng = random.Random(0)
    parents = [[rng.randrange(-1, node) for node in range(n)] for n, _ in lengths]
    device = torch.zeros(()).device
    tree = TreeMask.from_parents([parent for one in parents for parent in one], device, cu=CU_Q)
    config = blocks(16, 32)
    agree(
        *packed(tree=tree, config=config), lambda s: {"tree": TreeMask.from_parents(parents[s], device)}, config=config
    )


def test_a_bitmap_numbers_keys_within_the_sequence(blocks):
    rng = torch.Generator("cpu").manual_seed(5)
    rows = int(CU_Q[-1])
    see = torch.rand(1, 4, rows + SPARE, 50, generator=rng, device="cpu").lt(0.5).to(torch.zeros(()).device)

    def part(s):
        return {"bitmap": Bitmap.from_bool(see[:, :, CU_Q[s] : CU_Q[s + 1], : LENGTHS[s][1]])}

    config = blocks(16, 32)
    agree(*packed(bitmap=Bitmap.from_bool(see), config=config), part, config=config)


def test_a_bias_numbers_keys_within_the_sequence(blocks):
    rng = torch.Generator("cpu").manual_seed(6)
    rows, device = int(CU_Q[-1]), torch.zeros(()).device
    bias = torch.randn(1, 4, rows + SPARE, 50, generator=rng, device="cpu").to(device)
    for s, (start, end) in enumerate(pairwise(CU_Q.tolist())):
        bias[:, :, start:end, LENGTHS[s][1] :] = math.nan
    bias[:, :, rows:] = math.nan

    def part(s):
        return {"bias": bias[:, :, CU_Q[s] : CU_Q[s + 1], : LENGTHS[s][1]]}

    agree(*packed(bias=bias, config=blocks(16, 32)), part, config=blocks(16, 32))


def test_the_gradient_of_a_packed_bias_is_that_of_each_sequence(blocks):
    rows, device = int(CU_Q[-1]), torch.zeros(()).device
    bias = torch.linspace(-1, 1, (rows + SPARE) * 50, device=device).view(1, 1, -1, 50).requires_grad_()
    inputs, _ = packed(bias=bias, config=blocks(16, 32))

    expected = torch.zeros_like(bias)
    for s, parts in enumerate(sequences(inputs, "qkkqq")):
        start, end, keys = int(CU_Q[s]), int(CU_Q[s + 1]), LENGTHS[s][1]
        own = bias.detach()[:, :, start:end, :keys].clone().requires_grad_()
        alone(parts, bias=own, config=blocks(16, 32))
        expected[:, :, start:end, :keys] = own.grad
    assert torch.equal(bias.grad, expected)


def test_rows_past_the_last_sequence_are_not_written(blocks, monkeypatch):
    monkeypatch.setattr(
        torch,
        "empty",
        lambda *size, **options: (
            torch.full(*size, 7.0, **options) if len(size) == 1 else torch.full(size, 7.0, **options)
        ),
    )
    _, (o, lse, dq, dk, dv) = packed(config=blocks(16, 16))
    for name, x, rows in (("o", o, CU_Q), ("lse", lse, CU_Q), ("dq", dq, CU_Q), ("dk", dk, CU_K), ("dv", dv, CU_K)):
        assert bool((x[int(rows[-1]) :] == (7.0 * math.log(2) if name == "lse" else 7.0)).all()), name


def test_offsets_past_two_to_the_31_elements(blocks):
    # Rows and words 2**30 apart in virtual memory that the system fills with zeros only where it is touched.
    stride, rows, cu = 2**30, 5, torch.tensor([0, 1, 3, 4], dtype=torch.int32)
    try:
        base = torch.empty(stride * (rows - 1) + 8, dtype=torch.float16)
        words = torch.empty(stride * (rows - 1) + 1, dtype=torch.int32).as_strided((1, 1, rows, 1), (0, 0, stride, 1))
    except RuntimeError:
        pytest.skip("no virtual memory for 25 GiB")
    near = torch.randn(rows, 1, 8, generator=torch.Generator("cpu").manual_seed(0), device="cpu").half()
    far = base.as_strided((rows, 1, 8), (stride, 0, 1))
    far[:4] = near[:4]
    words[:, :, :4] = 1
    sizes = {"cu_q": cu, "cu_k": cu, "max_q": 2, "max_k": 2, "config": blocks(16, 16)}
    o, lse = attention_varlen(far, far, far, bitmap=Bitmap(words), **sizes)
    expected, expected_lse = attention_varlen(near, near, near, bitmap=Bitmap(words.contiguous()), **sizes)
    assert torch.equal(o[:4], expected[:4])
    assert torch.equal(lse[:, :4], expected_lse[:, :4])


def test_no_sequence_at_all():
    q = torch.zeros(3, 2, 8)
    cu = torch.zeros(1, dtype=torch.int32)
    o, lse = attention_varlen(q, q, q, cu, cu, max_q=0, max_k=0)
    assert (tuple(o.shape), tuple(lse.shape)) == ((3, 2, 8), (2, 3))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"cu_q": torch.tensor([0, 3])}, TypeError, "cu_q: expected torch.int32, got torch.int64"),
        ({"cu_q": [0, 3]}, TypeError, "cu_q: expected a tensor, got list"),
        ({"cu_k": torch.tensor([0, 2, 3], dtype=torch.int32)}, ValueError, r"cu_k: expected shape \(2,\), got \(3,\)"),
        ({"cu_q": torch.tensor([1, 3], dtype=torch.int32)}, ValueError, "cu_q: expected values that start at 0"),
        ({"cu_q": torch.tensor([0, 4], dtype=torch.int32)}, ValueError, "cu_q: .* end by 3, got"),
        ({"max_q": 2}, ValueError, "max_q: expected at least 3, the longest sequence, got 2"),
        ({"max_k": 2}, ValueError, "max_k: expected at least 3, the longest sequence, got 2"),
        ({"max_q": 2.0}, TypeError, "max_q: expected a whole number, got 2.0"),
        ({"q": torch.zeros(1, 3, 2, 8)}, ValueError, r"q: expected 3 axes \(rows, heads, channels\)"),
        ({"tree": TreeMask.from_parents([-1, 0])}, ValueError, "tree: expected one node per query, 3, got 2"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="values are not read on a GPU")
def test_packed_sequences_are_refused_by_name_and_value(changed, error, message):
    q, cu = torch.zeros(3, 2, 8), torch.tensor([0, 3], dtype=torch.int32)
    arguments = {"q": q, "k": q, "v": q, "cu_q": cu, "cu_k": cu, "max_q": 3, "max_k": 3, **changed}
    with pytest.raises(error, match=message):
        attention_varlen(**arguments)
