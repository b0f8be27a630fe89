import pytest
import torch

from flashverify_kernels import attention, backward, forward
from flashverify_kernels.arguments import rows_aligned
from flashverify_kernels.merge import aligned


def same(a, b):
    for name, x in a.items():
        assert torch.equal(b[name], x), name


def padded(x, before, after):
    """The same values with gaps between rows and heads, at an odd offset."""
    big = torch.full((*x.shape[:2], x.shape[2] + after, x.shape[3] + before + after), torch.nan, dtype=x.dtype)
    view = big[:, :, : x.shape[2], before : before + x.shape[3]]
    view.copy_(x)
    return view


@pytest.mark.parametrize(("before", "after"), [(0, 8), (3, 2)])
def test_strides_and_alignment_do_not_matter(make_case, before, after):
    case = make_case(batch=2, heads=2, kv_heads=1, sq=20, sk=35, dtype=torch.float16)
    plain = case.run()
    case.q, case.k, case.v = (padded(x, before, after) for x in (case.q, case.k, case.v))
    case.do = padded(case.do, before, after)
    same(plain, case.run())


@pytest.mark.parametrize(("gap", "offset"), [(1, 1), (0, 0)])
def test_one_head_alone_is_aligned_as_among_the_others(gap, offset):
    memory = torch.zeros(20 * 8 * (96 + gap) + offset)
    heads = memory[offset:].view(1, 20, 8, 96 + gap)[..., :96].transpose(1, 2)
    alone = heads[:, 7:]
    assert alone.data_ptr() % 16 == 0
    assert rows_aligned({"do": alone}) == rows_aligned({"do": heads}) == (gap == 0)
    assert aligned(alone) == aligned(heads) == (gap == 0)


def test_the_bshd_layout_is_the_transpose(make_case):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=20, sk=35, dv=24)
    plain = case.run()
    for name in ("q", "k", "v", "do"):
        setattr(case, name, getattr(case, name).transpose(1, 2).contiguous())
    got = case.run(layout="bshd")
    assert got["o"].is_contiguous()
    assert torch.equal(got["lse"], plain["lse"])
    for name in ("o", "dq", "dk", "dv"):
        assert torch.equal(got[name].transpose(1, 2), plain[name]), name


def test_packed_qkv_views(make_case):
    case = make_case(batch=2, heads=2, sq=20, sk=20)
    plain = case.run(causal="top-left")
    packed = torch.stack([case.q, case.k, case.v]).permute(1, 3, 0, 2, 4).contiguous().requires_grad_()
    q, k, v = packed.unbind(2)
    o, lse = attention(q, k, v, causal="top-left", layout="bshd", return_lse=True)
    torch.autograd.backward([o, lse], [case.do.transpose(1, 2), case.dlse])
    for n, name in enumerate(("dq", "dk", "dv")):
        assert torch.equal(packed.grad[:, :, n].transpose(1, 2), plain[name]), name


def test_inputs_may_be_the_same_tensor(make_case, see):
    case = make_case(sq=20, sk=20)
    case.k = case.v = case.q
    got = case.check(see(1, 20, 20))
    x = case.q.detach().requires_grad_()
    o, lse = attention(x, x, x, return_lse=True)
    torch.autograd.backward([o, lse], [case.do, case.dlse])
    torch.testing.assert_close(x.grad, got["dq"] + got["dk"] + got["dv"])


def test_expanded_inputs_of_stride_zero(make_case):
    case = make_case(batch=3, heads=2, sq=9, sk=11)
    for name in ("q", "k", "v"):
        setattr(case, name, getattr(case, name)[:1, :1].expand_as(getattr(case, name)))
    strided = case.run()
    for name in ("q", "k", "v"):
        setattr(case, name, getattr(case, name).contiguous())
    same(case.run(), strided)


def test_gradients_of_any_strides(make_case):
    case = make_case(batch=2, heads=2, sq=9, sk=11, dv=16)
    plain = case.run()
    case.do = case.do.transpose(2, 3).contiguous().transpose(2, 3)
    case.dlse = case.dlse.transpose(0, 2).contiguous().transpose(0, 2)
    same(plain, case.run())
    case.do = torch.ones(()).expand(case.do.shape)
    expanded = case.run()
    case.do = case.do.contiguous()
    same(case.run(), expanded)


def test_strides_of_axes_of_size_one_are_never_used(make_case):
    case = make_case(sq=1, sk=1)
    plain = case.run()
    for name in ("q", "k", "v", "do"):
        x = getattr(case, name)
        setattr(case, name, x.as_strided(x.shape, (2**62 + 1, 2**61, 2**60 + 3, 1)))
    same(plain, case.run())


def test_offsets_past_two_to_the_31_elements():
    # Rows 2**30 apart in virtual memory that the system fills with zeros only where it is touched.
    stride, rows = 2**30, 4
    try:
        base = torch.empty(stride * (rows - 1) + 8, dtype=torch.float16)
    except RuntimeError:
        pytest.skip("no virtual memory for 6 GiB")
    far = base.as_strided((1, 1, rows, 8), (0, 0, stride, 1))
    near = torch.randn(1, 1, rows, 8, generator=torch.Generator("cpu").manual_seed(0), device="cpu").half()
    far.copy_(near)
    o, lse2 = forward(far, far, far)
    expected, expected_lse2 = forward(near, near, near)
    assert torch.equal(o, expected)
    assert torch.equal(lse2, expected_lse2)
    for got, wanted in zip(
        backward(far, far, far, far, o, lse2)[:4], backward(near, near, near, near, o, lse2)[:4], strict=True
    ):
        assert torch.equal(got, wanted)


def test_inputs_are_left_alone(make_case):
    case = make_case(batch=2, heads=2, kv_heads=1, sq=20, sk=35)
    before = [x.clone() for x in (case.q, case.k, case.v, case.do, case.dlse)]
    case.run(causal="bottom-right")
    for x, y in zip(before, (case.q, case.k, case.v, case.do, case.dlse), strict=True):
        assert torch.equal(x, y)


def test_key_lengths_may_not_change_between_forward_and_backward(make_case):
    case = make_case(sq=4, sk=8)
    lengths = torch.tensor([5], dtype=torch.int32)
    o = attention(case.q.requires_grad_(), case.k, case.v, key_lengths=lengths)
    lengths.fill_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()
