"""Loops of the introduction and the textbook chapter as printed: what they hold, how often they read, and empty tiles."""

import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flashverify.interpreter import count
from flashverify_kernels import Configs, LaunchConfig, Options, merge
from flashverify_kernels.algorithms import Setting, two_pass_forward
from flashverify_kernels.launch import forward

f32 = np.float32


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Largest(TorchDispatchMode):
    """The most elements of any tensor that an operation of the block returns."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor):
            self.elements = max(self.elements, found.numel())
        return found


def online_inner(q, k, v, block):
    """`flash_attn_inner` of the introduction's appendix, with columns and the new maximum."""
    o, total, top = q.new_zeros(len(q), v.shape[1]), q.new_zeros(len(q)), q.new_full((len(q),), -torch.inf)
    for j in range(0, len(k), block):
        s = q @ k[j : j + block].T
        new = torch.maximum(top, s.amax(1))
        weights, old = (s - new[:, None]).exp(), total * (top - new).exp()
        total = old + weights.sum(1)
        o = (o * old[:, None] + weights @ v[j : j + block]) / total[:, None]
        top = new
    return o


def online(q, k, v, block):
    """`flash_attn` likewise."""
    o = torch.zeros_like(q)
    for i in range(0, len(q), block):
        o[i : i + block] = online_inner(q[i : i + block], k, v, block)
    return o


@pytest.mark.parametrize("n", [32, 64])
def test_the_loops_hold_no_array_of_queries_by_keys(n):
    d, block = 4, 8
    q, k, v = (draw(n, d, seed=seed) for seed in range(3))

    with Largest() as loops:
        o = online(q, k, v, block)
    with Largest() as standard:
        expected = (q @ k.T).softmax(1) @ v

    assert torch.allclose(o, expected)
    assert loops.elements == n * d  # O itself; a tile of scores has block^2
    assert standard.elements == n * n


class Read(list):
    """A list that counts how often its elements are read."""

    reads = 0

    def __getitem__(self, index):
        self.reads += 1
        return super().__getitem__(index)


def two_pass(z):
    """The chapter's standard softmax."""
    m = max(z[i] for i in range(len(z)))
    e = [math.exp(z[i] - m) for i in range(len(z))]
    return [x / sum(e) for x in e]


def one_pass(z):
    """The chapter's online softmax."""
    m, s = -math.inf, 0.0
    for i in range(len(z)):
        x = z[i]
        m_new = max(m, x)
        m, s = m_new, s * math.exp(m - m_new) + math.exp(x - m_new)
    statistics = z.reads
    return [math.exp(z[i] - m) / s for i in range(len(z))], statistics


def test_the_one_pass_softmax_reads_z_twice_as_the_two_pass_one_does():
    values = [2.0, 5.0, 1.0, 4.0]
    online_z, standard_z = Read(values), Read(values)

    weights, statistics = one_pass(online_z)

    assert weights == pytest.approx(two_pass(standard_z))
    assert statistics == len(values)  # one pass makes m and s
    assert online_z.reads == standard_z.reads == 2 * len(values)  # softmax itself wants z again


def test_with_the_values_carried_along_one_pass_over_the_keys_suffices():
    n, d, tile = 64, 16, 16
    inputs = [draw(1, 1, n, d, seed=seed).float() for seed in range(3)]

    def keys(launch):
        with count() as launches:
            launch()
        return sum(x.loads for found in launches for name, x in found.traffic.items() if name.split("_")[0] == "k")

    apart = keys(lambda: two_pass_forward(*inputs, Setting(scale=0.25, block_m=tile, block_n=tile)))
    config = Configs(forward=LaunchConfig(block_m=tile, block_n=tile))
    carried = keys(lambda: forward(*inputs, Options(config=config)))

    assert carried == n * d * (n // tile)
    assert apart == 2 * carried


def phase_1(scores, values):
    """The chapter's tile of keys in fp32: (m, s, o), o not normalised. A tile without keys leaves the loop at once."""
    m, s, o = f32(-np.inf), f32(0), np.zeros(values.shape[1], f32)
    for score, value in zip(scores, values, strict=True):
        m_new = max(m, score)
        correction, weight = np.exp(m - m_new), np.exp(score - m_new)
        m, s, o = m_new, s * correction + weight, o * correction + weight * value
    return m, s, o


def phase_2(tiles):
    """The chapter's loop over tiles: (output, LSE)."""
    m, s, o = f32(-np.inf), f32(0), np.zeros_like(tiles[0][2])
    with np.errstate(invalid="ignore"):
        for m_t, s_t, o_t in tiles:
            m_new = max(m, m_t)
            old, new = np.exp(m - m_new), np.exp(m_t - m_new)
            m, s, o = m_new, s * old + s_t * new, o * old + o_t * new
        return o / s, m + np.log(s)


def merged_pair(i, j):
    """The chapter's `merge(tile_i, tile_j)` of normalised outputs."""
    with np.errstate(invalid="ignore"):
        m_new = max(i[0], j[0])
        corr_i, corr_j = np.exp(i[0] - m_new), np.exp(j[0] - m_new)
        s_new = i[1] * corr_i + j[1] * corr_j
        return m_new, s_new, (i[2] * i[1] * corr_i + j[2] * j[1] * corr_j) / s_new


def tiles_and_whole():
    """Two full tiles and one without keys, and O of all keys."""
    scores, values = draw(8).float().numpy(), draw(8, 8, seed=1).float().numpy()
    full = [phase_1(scores[:4], values[:4]), phase_1(scores[4:], values[4:])]
    weights = np.exp(scores.astype(np.float64))
    return full, phase_1(scores[:0], values[:0]), weights @ values / weights.sum()


def test_an_empty_tile_is_harmless_last_in_the_loop_and_nan_where_it_is_first():
    full, empty, whole = tiles_and_whole()

    output, lse = phase_2(full)
    assert output == pytest.approx(whole, rel=1e-5)
    for tiles in ([*full, empty], [full[0], empty, full[1]]):
        found = phase_2(tiles)
        assert np.array_equal(found[0], output)
        assert found[1] == lse
    for tiles in ([empty, *full], [empty]):
        assert np.isnan(phase_2(tiles)[0]).all()  # exp(-inf - -inf)


def test_the_merge_of_pairs_is_neutral_for_an_empty_tile_unless_its_output_was_divided_or_both_are_empty():
    full, empty, _ = tiles_and_whole()
    m, s, o = full[0]
    tile = (m, s, o / s)

    for pair in ((tile, empty), (empty, tile)):
        assert merged_pair(*pair)[2] == pytest.approx(tile[2], rel=1e-6)
    with np.errstate(invalid="ignore"):
        divided = (empty[0], empty[1], empty[2] / empty[1])
    assert np.isnan(divided[2]).all()  # 0 / 0
    for pair in ((tile, divided), (divided, tile), (empty, empty)):
        assert np.isnan(merged_pair(*pair)[2]).all()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_empty_tile_is_neutral_in_the_merge_of_the_kernels_wherever_it_stands(place):
    full, empty, whole = tiles_and_whole()
    tiles = [(m + np.log(s), o / s) for m, s, o in full]
    tiles.insert(place, (empty[0], np.full_like(empty[2], np.nan)))  # its O is not read

    lse, o = (torch.from_numpy(np.stack(x)) for x in zip(*tiles, strict=True))
    merged, total = merge(o[:, None, None, None], lse[:, None, None, None])

    assert merged[0, 0, 0].numpy() == pytest.approx(whole, rel=1e-5)
    assert float(total) == pytest.approx(float(phase_2(full)[1]), rel=1e-6)
    both = merge(o[place, None, None, None, None].expand(2, -1, -1, -1, -1), torch.full((2, 1, 1, 1), -torch.inf))
    assert bool((both[0] == 0).all())
    assert bool((both[1] == -torch.inf).all())
