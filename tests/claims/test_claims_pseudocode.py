"""Formulas and pseudocode of the introduction, the notes and the paper, as printed and as they must read, beside the oracle."""

import math
from fractions import Fraction

import pytest
import torch

from flashverify_oracles import backward, forward

torch_f64 = torch.float64


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch_f64)


def heads(*tensors):
    return [x[None, None] for x in tensors]


def attention(q, k, v, scale=1.0, **options):
    """O of the oracle, `[rows, channels]`."""
    return forward(*heads(q, k, v), scale=scale, **options).o[0, 0]


def probabilities(scores):
    """P of the oracle, `[rows, keys]`: O where K and V are the identity."""
    unit = torch.eye(scores.shape[1], dtype=torch_f64)
    return attention(scores, unit, unit)


def test_the_streaming_weighted_mean_is_attention():
    scores, values = [Fraction(x, 4) for x in (3, 0, -2, 5)], [Fraction(v, 3) for v in (1, -4, 2, 9)]
    weights = [Fraction(math.exp(s)) for s in scores]
    c = y = Fraction(0)
    for w, v in zip(weights, values, strict=True):
        y = (c * y + w * v) / (c + w)
        c += w
    assert y == sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    q, k, v = (
        torch.ones(1, 1, dtype=torch_f64),
        *(torch.tensor([[float(x)] for x in xs]).double() for xs in (scores, values)),
    )
    assert abs(float(attention(q, k, v)) - float(y)) < 1e-7  # the values are thirds in fp32


def test_einsum_nn_nd_takes_the_diagonal_of_p():
    scores, v = draw(5, 5), draw(5, 3, seed=1)
    p, o = probabilities(scores), attention(scores, torch.eye(5, dtype=torch_f64), v)
    as_printed = torch.einsum("nn,nd->nd", p, v)

    assert torch.allclose(as_printed, p.diagonal()[:, None] * v)
    assert not torch.allclose(as_printed, o)
    assert torch.allclose(torch.einsum("nm,md->nd", p, v), o)


def online(q, k, v, block, *, column, name="new"):
    """The appendix's loop; `column` writes row statistics as columns, `name` is which maximum the third line reads."""
    n, d = q.shape
    o, total, top = torch.zeros(n, d, dtype=torch_f64), torch.zeros(n, dtype=torch_f64), torch.full((n,), -torch.inf)
    top = top.double()
    for j in range(0, len(k), block):
        s = q @ k[j : j + block].T
        maxima = {"new": torch.maximum(top, s.amax(1)), "curr": s.amax(1)}
        w = torch.exp(s - maxima["new"][:, None])
        new_total = total * torch.exp(top - maxima["new"]) + w.sum(1)
        factor = total * torch.exp(top - maxima[name])
        if column:
            o = (o * factor[:, None] + w @ v[j : j + block]) / new_total[:, None]
        else:
            o = (o * factor + w @ v[j : j + block]) / new_total
        total, top = new_total, maxima["new"]
    return o


def test_the_normalised_online_step_is_right_with_columns_and_the_new_maximum():
    q, k, v = draw(4, 3), draw(8, 3, seed=1), draw(8, 3, seed=2)
    assert torch.allclose(online(q, k, v, 2, column=True), attention(q, k, v))


def test_as_printed_its_row_statistics_do_not_fit_or_silently_scale_columns():
    k, v = draw(8, 3, seed=1), draw(8, 3, seed=2)
    with pytest.raises(RuntimeError, match="must match"):
        online(draw(4, 3), k, v, 2, column=False)
    square = draw(3, 3)  # as many rows as channels: no error, wrong values
    assert not torch.allclose(online(square, k, v, 2, column=False), attention(square, k, v))


def test_curr_running_max_is_never_defined_and_the_maximum_of_the_block_is_wrong():
    q, k, v = draw(4, 3), draw(8, 3, seed=1), draw(8, 3, seed=2)
    assert not torch.allclose(online(q, k, v, 2, column=True, name="curr"), attention(q, k, v))


def test_a_remainder_that_whole_blocks_leave_must_not_be_dropped():
    q, k, v = draw(4, 3), draw(7, 3, seed=1), draw(7, 3, seed=2)
    kept = len(k) // 2 * 2
    assert not torch.allclose(online(q, k[:kept], v[:kept], 2, column=True), attention(q, k, v))
    assert torch.allclose(online(q, k, v, 2, column=True), attention(q, k, v))


def test_the_pseudocode_leaves_out_the_scale_of_its_own_equation():
    q, k, v = draw(4, 16), draw(8, 16, seed=1), draw(8, 16, seed=2)
    assert not torch.allclose(online(q, k, v, 2, column=True), attention(q, k, v, scale=0.25))
    assert torch.allclose(online(0.25 * q, k, v, 2, column=True), attention(q, k, v, scale=0.25))


def test_s_and_p_cannot_be_recomputed_from_o_and_the_statistics():
    q, v, do = torch.ones(1, 1, dtype=torch_f64), torch.ones(2, 1, dtype=torch_f64), torch.ones(1, 1, dtype=torch_f64)
    keys = [torch.tensor([[1.0], [0.0]]).double(), torch.tensor([[0.0], [1.0]]).double()]
    first, second = (forward(*heads(q, k, v), scale=1.0) for k in keys)
    one, other = (
        backward(*heads(q, k, v, do), scale=1.0, forward=found) for k, found in zip(keys, (first, second), strict=True)
    )

    assert torch.allclose(first.o, second.o)
    assert torch.allclose(first.lse, second.lse)
    assert not torch.allclose(one.dv, other.dv)  # dV = P^T dO


def test_gradients_of_equations_3_to_6_and_the_misprint_of_dk():
    q, k, v = (draw(6, 3, seed=s) for s in range(3))
    do = draw(6, 3, seed=3)
    found = forward(*heads(q, k, v), scale=1.0)
    gradients = backward(*heads(q, k, v, do), scale=1.0, forward=found)
    dq, dk, dv = (x[0, 0] for x in (gradients.dq, gradients.dk, gradients.dv))
    p, o = probabilities(q @ k.T), found.o[0, 0]
    ds = p * (do @ v.T - (do * o).sum(1)[:, None])

    assert torch.allclose(ds, p * (do @ v.T) - (p * (do @ v.T)).sum(1)[:, None] * p)
    assert torch.allclose(dv, p.T @ do)
    assert torch.allclose(dq, ds @ k)
    assert torch.allclose(dk, ds.T @ q)
    assert (q.T @ ds).shape == (3, 6) != dk.shape  # printed: dK = Q^T dS, the transpose
    assert not torch.allclose(ds @ q, dk)  # printed: dk_i = sum over j of dS_ij q_i


def test_delta_is_the_row_sum_of_do_o_also_with_dropout():
    scores, v, do = draw(6, 6), draw(6, 3, seed=1), draw(6, 3, seed=2)
    keep = draw(6, 6, seed=3) > 0
    unit = torch.eye(6, dtype=torch_f64)
    dropped = {"keep": keep[None, None], "dropout": 0.5, "scale": 1.0}
    found = forward(*heads(scores, unit, v), **dropped)
    delta = backward(*heads(scores, unit, v, do), forward=found, **dropped).delta[0, 0]
    dp = (do @ v.T) * keep / 0.5

    assert torch.allclose((probabilities(scores) * dp).sum(1), delta)
    assert torch.allclose((do * found.o[0, 0]).sum(1), delta)


def test_the_induction_step_needs_the_inverse_that_is_missing_in_its_third_line():
    s, v = draw(5, 8), draw(8, 3, seed=1)
    m, m_new = s[:, :4].amax(1), s.amax(1)
    total, total_new = torch.exp(s[:, :4] - m[:, None]).sum(1), torch.exp(s - m_new[:, None]).sum(1)
    rest = torch.exp(s[:, 4:] - m_new[:, None]) @ v[4:]

    def step(weight):
        old = (total * torch.exp(m - m_new) * weight)[:, None] * (torch.exp(s[:, :4] - m[:, None]) @ v[:4])
        return (old + rest) / total_new[:, None]

    o = attention(s, torch.eye(8, dtype=torch_f64), v)
    assert torch.allclose(step(1 / total), o)
    assert not torch.allclose(step(total), o)


def test_concatenated_statistics():
    x = draw(2, 5)
    m = x.amax()
    f = torch.cat([torch.exp(part.amax() - m) * torch.exp(part - part.amax()) for part in x])
    total = sum(torch.exp(part.amax() - m) * torch.exp(part - part.amax()).sum() for part in x)
    assert torch.allclose(f / total, probabilities(x.flatten()[None])[0])
