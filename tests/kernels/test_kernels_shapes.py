import pytest
import torch

from flashverify_kernels import attention, backward, forward
from flashverify_kernels.runtime import INTERPRETED


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33])
@pytest.mark.parametrize("causal", [None, "bottom-right"])
def test_lengths_around_the_tile_edges(make_case, see, n, causal):
    make_case(sq=n, sk=n).check(see(1, n, n, causal), causal=causal)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 1), (6, 2), (3, 3), (24, 2)])
def test_query_heads_read_the_kv_head_of_their_group(make_case, see, heads, kv_heads):
    make_case(batch=2, heads=heads, kv_heads=kv_heads, sq=5, sk=7).check(see(2, 5, 7))


# Even and uneven powers of two, both orders, and the ends of the range; one small length, since channels are at stake.
@pytest.mark.parametrize(
    ("d", "dv"), [(8, 8), (8, 24), (16, 64), (40, 16), (64, 128), (72, 8), (128, 128), (256, 8), (8, 256), (248, 232)]
)
def test_head_dimensions_may_differ(make_case, see, d, dv):
    make_case(sq=9, sk=11, d=d, dv=dv).check(see(1, 9, 11, "top-left"), causal="top-left")


@pytest.mark.parametrize("d", [32, 128])
@pytest.mark.parametrize("causal", [None, "bottom-right"])
def test_half_precision(make_case, see, d, causal):
    case = make_case(batch=1, heads=2, kv_heads=1, sq=48, sk=80, d=d, dtype=torch.float16)
    case.check(see(1, 48, 80, causal), causal=causal)


@pytest.mark.parametrize("precision", ["ieee", "tf32", "tf32x3"])
def test_precisions_are_accepted(make_case, see, precision):
    case = make_case(sq=9, sk=11)
    if precision == "tf32":  # ten bits of operands: outside the tolerance of fp32
        exact, got = case.run(precision="ieee"), case.run(precision="tf32")
        assert all(float((got[name] - exact[name]).abs().max()) < 2**-7 for name in exact)
    else:
        case.check(see(1, 9, 11), precision=precision)


@pytest.mark.parametrize("scale", [-0.7, 0, 1, 1.5, 1e-20])
@pytest.mark.parametrize("causal", [None, "top-left"])
def test_the_scale_may_have_any_sign(make_case, see, scale, causal):
    make_case(sq=20, sk=35).check(see(1, 20, 35, causal), scale=scale, causal=causal)


@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "sq", "sk"),
    [(0, 2, 1, 5, 5), (1, 0, 0, 5, 5), (1, 0, 3, 5, 5), (1, 2, 1, 0, 5), (1, 2, 1, 5, 0), (1, 2, 1, 0, 0)],
)
@pytest.mark.parametrize("causal", [None, "top-left", "bottom-right"])
def test_empty_axes(make_case, see, batch, heads, kv_heads, sq, sk, causal):
    case = make_case(batch=batch, heads=heads, kv_heads=kv_heads, sq=sq, sk=sk)
    got = case.run(causal=causal)
    assert got["o"].shape == (batch, heads, sq, 16)
    assert bool((got["lse"] == -torch.inf).all()) or bool(sk)
    for name in ("o", "dq", "dk", "dv"):
        if sq == 0 or sk == 0 or heads == 0:
            assert bool((got[name] == 0).all()), name


def test_an_empty_tree(make_case, tree):
    got = make_case(sq=0, sk=3).run(tree=tree([]))
    assert bool((got["dk"] == 0).all())


def test_more_than_65535_heads_launch():
    if INTERPRETED:
        pytest.skip("takes minutes in the interpreter, which has no such limit")
    q = torch.ones(1, 65_537, 1, 8)
    assert torch.equal(forward(q, q, q).o, q)


def test_extreme_logits_stay_finite(make_case, see):
    case = make_case(sq=33, sk=40)
    case.q *= 300
    got = case.run(causal="bottom-right")
    assert all(bool(x.isfinite().all()) for x in got.values())
    case.q = case.q.abs()
    case.k = -case.k.abs()
    got = case.run()
    assert all(bool(x.isfinite().all()) for x in got.values())


def test_launchers_agree_with_autograd(make_case):
    case = make_case(heads=2, kv_heads=1, sq=20, sk=30)
    got = case.run()
    o, lse2 = forward(case.q, case.k, case.v)
    result = backward(case.do, case.q, case.k, case.v, o, lse2, dlse=case.dlse)
    for name in ("dq", "dk", "dv"):
        assert torch.equal(getattr(result, name), got[name])
    delta = (case.do.double() * o.double()).sum(-1) - case.dlse.double()
    torch.testing.assert_close(result.delta.double(), delta, rtol=0, atol=1e-5)


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_only_the_gradients_that_are_needed_come_back(make_case, wanted):
    case = make_case(sq=9, sk=11)
    all_grads = [case.run()[name] for name in ("dq", "dk", "dv")]
    inputs = [case.q, case.k, case.v]
    inputs[wanted] = inputs[wanted].detach().requires_grad_()
    o, lse = attention(*inputs, return_lse=True)
    torch.autograd.backward([o, lse], [case.do, case.dlse])
    assert [x.grad is not None for x in inputs] == [n == wanted for n in range(3)]
    assert torch.equal(inputs[wanted].grad, all_grads[wanted])


def test_a_loss_through_the_lse_alone(make_case, see):
    case = make_case(sq=9, sk=11)
    case.do = torch.zeros_like(case.do)
    got = case.check(see(1, 9, 11))
    q = case.q.detach().requires_grad_()
    attention(q, case.k, case.v, return_lse=True)[1].backward(case.dlse)
    torch.testing.assert_close(q.grad, got["dq"], rtol=0, atol=0)


def test_results_repeat_and_do_not_depend_on_neighbours(make_case, blocks):
    case = make_case(batch=3, heads=4, kv_heads=2, sq=20, sk=35)
    whole, again = case.run(config=blocks(16, 16)), case.run(config=blocks(16, 16))
    alone = type(case)(*(x[1:2] for x in (case.q, case.k, case.v, case.do, case.dlse))).run(config=blocks(16, 16))
    for name, x in whole.items():
        assert torch.equal(again[name], x), name
        assert torch.equal(alone[name], x[1:2]), name
