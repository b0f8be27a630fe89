import itertools
import math

import pytest
import torch

from flashverify_kernels import attention
from flashverify_kernels.merge import aligned, merge, merge_tiles
from tests.fast_tier import fast_one_in

INF = math.inf
# What fp32 arithmetic leaves of O(1) values; a 16-bit output adds one rounding of its own.
ERROR = {torch.float32: 4e-6, torch.float16: 6e-4}


def partials(parts=3, batch=2, heads=2, seq=5, dv=16, dtype=torch.float32, empty=0.3, spread=3.0, seed=0):
    """Partial outputs and LSE; `empty` of the LSE are -inf, and there O is NaN."""
    rng = torch.Generator("cpu").manual_seed(seed)
    shape = (parts, batch, heads, seq)
    o = torch.randn(*shape, dv, generator=rng, device="cpu")
    lse = spread * torch.randn(shape, generator=rng, device="cpu")
    lse[torch.rand(shape, generator=rng, device="cpu") < empty] = -INF
    o[lse == -INF] = math.nan
    device = torch.empty(0).device
    return o.to(device, dtype), lse.to(device)


def definition(o, lse):
    """Differentiable, in float64; empty partials are left out before anything is computed with them."""
    some = lse != -INF
    any_some = some.any(0)
    o = torch.where(some[..., None], o.double(), 0.0)
    lse = lse.double()
    merged_lse = torch.logsumexp(torch.where(some, lse, -1e300), 0)
    merged_lse = torch.where(any_some, merged_lse, -INF)
    w = torch.where(some, torch.exp(torch.where(some, lse - torch.where(any_some, merged_lse, 0.0), 0.0)), 0.0)
    return (w[..., None] * o).sum(0), merged_lse


def close(got, wanted, error):
    assert got.shape == wanted.shape
    assert torch.equal(got == -INF, wanted == -INF)
    got, wanted = got[got != -INF].double(), wanted[wanted != -INF].double()
    if wanted.numel():
        assert float((got - wanted).abs().max()) <= error * max(1.0, float(wanted.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("parts", "dv"), [(1, 8), (2, 16), (3, 40), (5, 64), (33, 16), (200, 256)])
def test_it_agrees_with_the_definition(dtype, parts, dv):
    o, lse = partials(parts=parts, dv=dv, dtype=dtype)
    merged, merged_lse = merge(o, lse)
    assert merged.dtype == dtype
    assert merged_lse.dtype == torch.float32
    wanted, wanted_lse = definition(o, lse)
    close(merged, wanted, ERROR[dtype])
    close(merged_lse, wanted_lse, 4e-6)


def test_more_partials_than_one_step_holds():
    block_p, _ = merge_tiles(600, 256)
    assert block_p < 600
    o, lse = partials(parts=600, batch=1, heads=1, dv=256)
    wanted, wanted_lse = definition(o, lse)
    merged, merged_lse = merge(o, lse)
    close(merged, wanted, ERROR[torch.float32])
    close(merged_lse, wanted_lse, 4e-6)


def test_few_partials_go_one_by_one_and_many_together():
    assert [merge_tiles(parts, 128, 2**12) for parts in (0, 1, 8, 9)] == [(1, 32), (1, 32), (1, 32), (16, 2)]


def test_one_partial_is_returned_bit_for_bit():
    for dtype in (torch.float32, torch.float16):
        o, lse = partials(parts=1, dtype=dtype, empty=0.0, spread=1e4)
        merged, merged_lse = merge(o, lse)
        assert torch.equal(merged, o[0])
        assert torch.equal(merged_lse, lse[0])


def test_empty_partials_change_no_bit():
    o, lse = partials(parts=3, empty=0.0)
    merged = merge(o, lse)
    for place in range(4):
        o4 = torch.cat([o[:place], torch.full_like(o[:1], math.nan), o[place:]])
        lse4 = torch.cat([lse[:place], torch.full_like(lse[:1], -INF), lse[place:]])
        close(merge(o4, lse4)[0], merged[0], 1e-6)
        first = merge(torch.stack([o4[place], o[0]]), torch.stack([lse4[place], lse[0]]))
        assert torch.equal(first[0], o[0])
        assert torch.equal(first[1], lse[0])


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_nothing_but_empty_partials_give_zero_and_minus_infinity(parts):
    o = torch.full((parts, 2, 1, 3, 8), math.nan).requires_grad_()
    lse = torch.full((parts, 2, 1, 3), -INF).requires_grad_()
    merged, merged_lse = merge(o, lse)
    assert bool((merged == 0).all())
    assert bool((merged_lse == -INF).all())
    torch.autograd.backward([merged, merged_lse], [torch.full_like(merged, INF), torch.full_like(merged_lse, math.nan)])
    assert bool((o.grad == 0).all())
    assert bool((lse.grad == 0).all())


@pytest.mark.parametrize("values", [*itertools.permutations([3e38, -3e38, 1e30]), (3e38, 3e38, -INF), (-3e38,) * 3])
def test_an_lse_of_any_size_is_safe(values):
    lse = torch.tensor(values).reshape(3, 1, 1, 1).requires_grad_()
    o = torch.randn(3, 1, 1, 1, 8).requires_grad_()
    merged, merged_lse = merge(o, lse)
    largest = [n for n, value in enumerate(values) if value == max(values)]
    torch.testing.assert_close(merged[0, 0, 0], o[largest, 0, 0, 0].mean(0))
    assert merged_lse.item() == pytest.approx(max(values), rel=1e-6)
    (merged.sum() + merged_lse.sum()).backward()
    assert bool(o.grad.isfinite().all())
    assert bool(lse.grad.isfinite().all())
    for n in range(3):
        assert torch.allclose(o.grad[n], torch.tensor(1 / len(largest) if n in largest else 0.0))


def test_equal_partials_are_their_own_merge_and_have_no_gradient_through_the_weights():
    o, lse = partials(parts=1, empty=0.0)
    o, lse = o.expand(2, -1, -1, -1, -1).contiguous(), lse.expand(2, -1, -1, -1).contiguous().requires_grad_()
    merged, merged_lse = merge(o, lse)
    assert torch.equal(merged, o[0])
    torch.testing.assert_close(merged_lse, lse[0] + math.log(2))
    merged.backward(torch.randn_like(merged))
    assert bool((lse.grad == 0).all())


def test_it_is_associative_up_to_rounding():
    o, lse = partials(parts=4)
    whole = merge(o, lse)
    for cut in (1, 2, 3):
        left, right = merge(o[:cut], lse[:cut]), merge(o[cut:], lse[cut:])
        again = merge(torch.stack([left[0], right[0]]), torch.stack([left[1], right[1]]))
        close(again[0], whole[0], 2e-6)
        close(again[1], whole[1], 2e-6)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", fast_one_in(2, [torch.float32, torch.float16], ids=str, kept=2))
@pytest.mark.parametrize(("parts", "dv"), [(1, 8), (2, 16), (3, 40), (33, 16), (200, 256)])
@pytest.mark.parametrize("given", ["both", "o", "lse"])
def test_gradients_agree_with_float64_autograd(dtype, parts, dv, given):
    o, lse = partials(parts=parts, dv=dv, dtype=dtype, seed=parts)
    o.requires_grad_(), lse.requires_grad_()
    merged, merged_lse = merge(o, lse)
    do, dlse = torch.randn_like(merged), torch.randn_like(merged_lse)
    keep = {"both": (0, 1), "o": (0,), "lse": (1,)}[given]
    torch.autograd.backward(*([pair[n] for n in keep] for pair in ((merged, merged_lse), (do, dlse))))

    o64 = torch.where(o.isnan(), 0.0, o.detach().double()).requires_grad_()
    lse64 = lse.detach().double().requires_grad_()
    outputs = definition(o64, lse64)
    some = outputs[1] != -INF
    gradients = [torch.where(some[..., None], do.double(), 0.0), torch.where(some, dlse.double(), 0.0)]
    torch.autograd.backward([outputs[n] for n in keep], [gradients[n] for n in keep])
    empty = lse.detach() == -INF
    for name, got, wanted in (("o", o.grad, o64.grad), ("lse", lse.grad, lse64.grad)):
        wanted = torch.zeros_like(got, dtype=torch.float64) if wanted is None else torch.nan_to_num(wanted)
        assert bool((got[empty] == 0).all()), name
        close(got, wanted, ERROR[dtype] if name == "o" else 4e-6 * math.sqrt(dv))


def test_only_the_gradients_that_are_wanted_are_computed():
    o, lse = partials(empty=0.0)
    full_o, full_lse = o.clone().requires_grad_(), lse.clone().requires_grad_()
    merge(full_o, full_lse)[0].sum().backward()
    o.requires_grad_()
    merge(o, lse)[0].sum().backward()
    assert torch.equal(o.grad, full_o.grad)
    o = o.detach()
    lse.requires_grad_()
    merge(o, lse)[0].sum().backward()
    assert torch.equal(lse.grad, full_lse.grad)


def test_strides_and_alignment_do_not_matter():
    o, lse = partials(parts=3, dtype=torch.float16)
    wanted = merge(o, lse)
    big = torch.full((3, 5, 2, 2, 21), math.nan, dtype=o.dtype)
    view = big.permute(0, 3, 2, 1, 4)[..., 3:19]
    view.copy_(o)
    lse_view = lse.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    for one, two in zip(merge(view, lse_view), wanted, strict=True):
        assert torch.equal(one, two)
    last = o.transpose(3, 4).contiguous().transpose(3, 4)
    assert torch.equal(merge(last, lse)[0], wanted[0])


def test_a_row_depends_on_no_other():
    o, lse = partials(parts=7, batch=3, heads=3, seq=50)
    whole = merge(o, lse)
    part = merge(o[:, 1:2, 2:, 13:14], lse[:, 1:2, 2:, 13:14])
    assert torch.equal(part[0], whole[0][1:2, 2:, 13:14])
    assert torch.equal(part[1], whole[1][1:2, 2:, 13:14])


def test_no_rows():
    merged, merged_lse = merge(torch.zeros(3, 0, 2, 5, 8), torch.zeros(3, 0, 2, 5))
    assert merged.shape == (0, 2, 5, 8)
    assert merged_lse.shape == (0, 2, 5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_attention_over_chunks_of_keys_merges_into_the_whole(make_case, see, dtype, causal):
    sq, sk, chunk = 24, 72, 24
    case = make_case(batch=2, heads=4, kv_heads=2, sq=sq, sk=sk, d=16, dv=24, dtype=dtype)
    inputs = [x.detach().requires_grad_() for x in (case.q, case.k, case.v)]
    q, k, v = inputs
    parts = []
    for n in range(0, sk, chunk):
        # bottom-right: the last chunk holds the diagonal, the chunks before it are seen whole
        diagonal = "bottom-right" if causal and n + chunk == sk else None
        parts.append(attention(q, k[:, :, n : n + chunk], v[:, :, n : n + chunk], causal=diagonal, return_lse=True))
    o, lse = merge(torch.stack([o for o, _ in parts]), torch.stack([lse for _, lse in parts]))
    torch.autograd.backward([o, lse], [case.do, case.dlse])
    got = [o.detach(), lse.detach(), *(x.grad for x in inputs)]

    rule = "bottom-right" if causal else None
    whole = case.check(see(2, sq, sk, rule), causal=rule)
    exact = dict(zip(whole, exact_values(case, see(2, sq, sk, rule)), strict=True))
    for (name, one), x in zip(whole.items(), got, strict=True):
        # each chunk rounds its own O, dO_p and gradients to the dtype: three roundings more than the whole
        close(x, exact[name], (1e-5 if dtype == torch.float32 else 4e-3))
        close(x, one, (1e-5 if dtype == torch.float32 else 4e-3))


def exact_values(case, visible):
    q, k, v = (x.double().requires_grad_() for x in (case.q, case.k, case.v))
    ke, ve = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = (q @ ke.transpose(2, 3) / math.sqrt(q.shape[3])).masked_fill(~visible, -INF)
    o, lse = torch.softmax(s, -1) @ ve, torch.logsumexp(s, -1)
    torch.autograd.backward([o, lse], [case.do.double(), case.dlse.double()])
    return o.detach(), lse.detach(), q.grad, k.grad, v.grad


@pytest.mark.parametrize(
    ("dtype", "step", "expected"),
    [("uint8", 72, False), ("uint8", 80, True), ("float16", 72, True), ("float16", 68, False), ("float32", 68, False)],
)
def test_rows_of_bytes_are_aligned_where_they_start_on_16_bytes(dtype, step, expected):
    x = torch.zeros(16 * step, dtype=getattr(torch, dtype))
    assert aligned(x[: 4 * step].view(4, step)[:, :64]) is expected
