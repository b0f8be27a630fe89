import math
from dataclasses import replace

import pytest
import torch

from flashverify_kernels import Bitmap, Configs, LaunchConfig, TreeMask, attention
from flashverify_kernels.config import config_error
from flashverify_kernels.decode import decode
from flashverify_kernels.decode_config import PROCESSORS, decode_config, decode_splits, resident_programs
from flashverify_kernels.merge import merge

INF = math.inf
SMALL = LaunchConfig(block_m=16, block_n=16)
ERROR = {torch.float32: 4e-6, torch.float16: 2e-3}


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def visible(batch, sq, sk, *, causal=None, window=(None, None), lengths=None, nodes=None):
    """`[B, 1, Sq, Sk]` bool; `nodes` `[B, Sq, Sq]` says which of the last Sq keys a query sees."""
    n = torch.full((batch,), sk) if lengths is None else lengths.long()
    i, j = torch.arange(sq)[:, None], torch.arange(sk)
    see = (j < n[:, None, None]).expand(batch, sq, sk).clone()
    shift = (n - sq if causal == "bottom-right" else torch.zeros_like(n))[:, None, None]
    left, right = window
    if causal is not None:
        right = 0
    if right is not None:
        see &= j <= i + shift + right
    if left is not None:
        see &= j >= i + shift - left
    if nodes is not None:
        for b in range(batch):
            for node in range(sq):
                key = int(n[b]) - sq + node
                if key >= 0:
                    see[b, :, key] &= nodes[b, :, node]
    return see[:, None]


def exact(q, k, v, see, scale=None):
    """O and LSE in float64."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // max(k.shape[1], 1), 1) for x in (k, v))
    s = (q @ k.transpose(2, 3) * (1 / math.sqrt(q.shape[3]) if scale is None else scale)).masked_fill(~see, -INF)
    lse = torch.logsumexp(s, -1)
    return torch.exp(s - lse.nan_to_num(neginf=0.0)[..., None]).masked_fill(~see, 0.0) @ v, lse


def agree(got, wanted, dtype):
    for x, y in zip(got, wanted, strict=True):
        assert x.shape == y.shape
        assert torch.equal(x == -INF, y == -INF)
        x, y = x[y != -INF].double(), y[y != -INF]
        if y.numel():
            assert float((x - y).abs().max()) <= ERROR[dtype] * max(1.0, float(y.abs().max()))


def same(got, wanted):
    for x, y in zip(got, wanted, strict=True):
        assert torch.equal(x, y)


def close(got, wanted, error=2e-6):
    for x, y in zip(got, wanted, strict=True):
        torch.testing.assert_close(x, y, rtol=error, atol=error)


def run(q, k, v, **options):
    return decode(q, k, v, return_lse=True, **options)


def paged(k, v, page_size, lengths=None, spare=3, garbage=None, seed=0):
    """The keys in shuffled pages, NaN wherever no key of a sequence lies; `garbage` in the entries that no key needs."""
    batch, heads, sk, _ = k.shape
    per_sequence = -(-sk // page_size)
    numbers = torch.randperm(
        batch * per_sequence + spare, generator=torch.Generator("cpu").manual_seed(seed), device="cpu"
    )
    table = numbers[: batch * per_sequence].reshape(batch, per_sequence).to(k.device, torch.int32)
    pages = [
        torch.full((len(numbers), page_size, heads, x.shape[3]), math.nan, dtype=x.dtype, device=x.device)
        for x in (k, v)
    ]
    for b in range(batch):
        n = sk if lengths is None else int(lengths[b])
        for j in range(n):
            for page, x in zip(pages, (k, v), strict=True):
                page[int(table[b, j // page_size]), j % page_size] = x[b, :, j]
        if garbage is not None:
            table[b, -(-n // page_size) :] = garbage
    return *pages, table


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("n_splits", [None, 1, 3])
@pytest.mark.parametrize(("sq", "sk", "d", "dv"), [(1, 1, 8, 8), (1, 300, 64, 32), (3, 129, 40, 72), (2, 70, 256, 128)])
def test_it_agrees_with_the_definition(make_case, dtype, n_splits, sq, sk, d, dv):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=sq, sk=sk, d=d, dv=dv, dtype=dtype)
    got = run(case.q, case.k, case.v, n_splits=n_splits)
    assert got[0].dtype == dtype
    agree(got, exact(case.q, case.k, case.v, visible(2, sq, sk)), dtype)


@pytest.mark.parametrize("group", [1, 3, 8, 17, 24])
@pytest.mark.parametrize("sq", [1, 3])
def test_groups_of_query_heads(make_case, group, sq):
    case = make_case(batch=2, heads=2 * group, kv_heads=2, sq=sq, sk=50)
    lengths = ints(50, 21)
    got = run(case.q, case.k, case.v, key_lengths=lengths, causal="bottom-right", n_splits=2, config=SMALL)
    see = visible(2, sq, 50, causal="bottom-right", lengths=lengths)
    agree(got, exact(case.q, case.k, case.v, see), torch.float32)


@pytest.mark.parametrize("causal", [None, "top-left", "bottom-right"])
@pytest.mark.parametrize("window", [None, (0, 0), (20, None), (None, 3), (5, 40), (2**40, 2**40)])
def test_masks(make_case, causal, window):
    lengths = ints(70, 33, 16, 5, 0)
    case = make_case(batch=5, heads=4, kv_heads=2, sq=9, sk=70)
    got = run(case.q, case.k, case.v, causal=causal, window=window, key_lengths=lengths, n_splits=3, config=SMALL)
    see = visible(5, 9, 70, causal=causal, window=window or (None, None), lengths=lengths)
    agree(got, exact(case.q, case.k, case.v, see), torch.float32)
    empty = ~see.any(-1).expand(got[1].shape)
    assert bool((got[0][empty] == 0).all())


@pytest.mark.parametrize("sq", [16, 17, 50])
def test_more_rows_than_one_tile(make_case, sq):
    case = make_case(heads=6, kv_heads=2, sq=sq, sk=80)
    got = run(case.q, case.k, case.v, causal="bottom-right", n_splits=3, config=SMALL)
    agree(got, exact(case.q, case.k, case.v, visible(1, sq, 80, causal="bottom-right")), torch.float32)


@pytest.mark.parametrize("n_splits", [1, 4])
def test_trees_end_at_the_key_length(make_case, tree, n_splits):
    parents, sq, sk = [-1, 0, 0, 1, 1, 2, -1], 7, 60
    mask = tree(parents)
    nodes = torch.zeros(sq, sq, dtype=torch.bool)
    for i in range(sq):
        node = i
        while node >= 0:
            nodes[i, node] = True
            node = parents[node]
    lengths = ints(60, 41, 16, 7, 3, 0)
    case = make_case(batch=6, heads=4, kv_heads=2, sq=sq, sk=sk)
    got = run(case.q, case.k, case.v, tree=mask, key_lengths=lengths, n_splits=n_splits, config=SMALL)
    see = visible(6, sq, sk, lengths=lengths, nodes=nodes.expand(6, -1, -1))
    agree(got, exact(case.q, case.k, case.v, see), torch.float32)
    bits = Bitmap.from_bool(nodes[None, None])
    same(run(case.q, case.k, case.v, tree=bits, key_lengths=lengths, n_splits=n_splits, config=SMALL), got)


def test_every_sequence_and_head_may_have_a_tree_of_its_own(make_case):
    sq, sk, lengths = 40, 90, ints(90, 63, 40)
    rng = torch.Generator("cpu").manual_seed(1)
    nodes = (torch.rand(3, 4, sq, sq, generator=rng, device="cpu") < 0.3).to(lengths.device)
    case = make_case(batch=3, heads=4, kv_heads=2, sq=sq, sk=sk)
    options = {"key_lengths": lengths, "n_splits": 3, "config": SMALL}
    got = run(case.q, case.k, case.v, tree=Bitmap.from_bool(nodes), **options)
    see = torch.cat([visible(3, sq, sk, lengths=lengths, nodes=nodes[:, h]) for h in range(4)], 1)
    agree(got, exact(case.q, case.k, case.v, see), torch.float32)


def test_a_chain_is_causal_bit_for_bit(make_case, tree):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=5, sk=60)
    options = {"key_lengths": ints(60, 33), "n_splits": 2, "config": SMALL}
    same(
        run(case.q, case.k, case.v, tree=tree(range(-1, 4)), **options),
        run(case.q, case.k, case.v, causal="bottom-right", **options),
    )


# 16 and 48 are multiples of the tile of keys, which then takes one entry of the table; the others scatter.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("page_size", [1, 5, 8, 16, 24, 48, 128])
def test_pages_equal_contiguous_keys_bit_for_bit(make_case, dtype, page_size):
    case = make_case(batch=3, heads=4, kv_heads=2, sq=2, sk=70, d=24, dv=40, dtype=dtype)
    lengths = ints(70, 37, 0)
    options = {"key_lengths": lengths, "causal": "bottom-right", "n_splits": 2, "config": SMALL}
    wanted = run(case.q, case.k, case.v, **options)
    k, v, table = paged(case.k, case.v, page_size, lengths, garbage=-1 if dtype == torch.float16 else 2**31 - 1)
    same(run(case.q, k, v, block_table=table, **options), wanted)


def test_pages_keep_their_order_of_axes_in_every_layout(make_case):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=2, sk=40)
    k, v, table = paged(case.k, case.v, 8)
    o, lse = run(case.q.transpose(1, 2).contiguous(), k, v, block_table=table, layout="bshd", n_splits=2)
    same((o.transpose(1, 2), lse), run(case.q, k, v, block_table=table, n_splits=2))


@pytest.mark.parametrize("page_size", [4, 16, 32])
def test_pages_before_every_window_are_not_read(make_case, page_size):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=2, sk=96)
    lengths = ints(96, 70)
    options = {"key_lengths": lengths, "causal": "bottom-right", "window": (10, 0), "n_splits": 3, "config": SMALL}
    wanted = run(case.q, case.k, case.v, **options)
    k, v, table = paged(case.k, case.v, page_size, lengths, garbage=-1)
    for b in range(2):
        table[b, : (int(lengths[b]) - 2 - 10) // page_size] = -1
    same(run(case.q, k, v, block_table=table, **options), wanted)


@pytest.mark.parametrize("poison", [math.nan, INF])
def test_what_lies_beyond_the_key_length_never_matters(make_case, poison):
    case = make_case(batch=3, heads=4, kv_heads=2, sq=2, sk=50)
    lengths = ints(33, 0, 50)
    options = {"key_lengths": lengths, "n_splits": 4, "config": SMALL}
    clean = run(case.q, case.k, case.v, **options)
    for b in range(3):
        case.k[b, :, int(lengths[b]) :] = poison
        case.v[b, :, int(lengths[b]) :] = poison
    same(run(case.q, case.k, case.v, **options), clean)


# With one query head per kv head a row has the same place in the tile of both kernels, and nothing else differs.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("causal", [None, "bottom-right"])
def test_one_split_of_a_head_of_its_own_is_attention_bit_for_bit(make_case, dtype, causal):
    case = make_case(batch=2, heads=3, sq=5, sk=90, d=24, dv=40, dtype=dtype)
    options = {"causal": causal, "key_lengths": ints(90, 41)}
    wanted = attention(case.q, case.k, case.v, config=Configs(forward=SMALL), return_lse=True, **options)
    same(run(case.q, case.k, case.v, n_splits=1, config=SMALL, **options), wanted)


# In a packed tile a row has another place; BLAS, which multiplies for the interpreter, sums the edges of a tile in another order.
@pytest.mark.parametrize("group", [3, 16])
def test_one_split_of_a_group_is_attention_up_to_the_order_of_sums(make_case, group):
    case = make_case(batch=2, heads=group, kv_heads=1, sq=3, sk=60)
    options = {"causal": "bottom-right", "key_lengths": ints(60, 25)}
    wanted = attention(case.q, case.k, case.v, config=Configs(forward=SMALL), return_lse=True, **options)
    close(run(case.q, case.k, case.v, n_splits=1, config=SMALL, **options), wanted)


@pytest.mark.parametrize("n_splits", [2, 3, 7, 20])
def test_the_number_of_splits_changes_rounding_alone(make_case, n_splits):
    case = make_case(batch=3, heads=4, kv_heads=2, sq=2, sk=96)
    options = {"causal": "bottom-right", "key_lengths": ints(96, 17, 0), "config": SMALL}
    one = run(case.q, case.k, case.v, n_splits=1, **options)
    close(run(case.q, case.k, case.v, n_splits=n_splits, **options), one)


def test_splits_beyond_the_tiles_are_empty_and_change_no_bit_of_one_tile(make_case):
    case = make_case(heads=4, kv_heads=2, sq=1, sk=16)
    one = run(case.q, case.k, case.v, n_splits=1, config=SMALL)
    for n_splits in (2, 20):
        same(run(case.q, case.k, case.v, n_splits=n_splits, config=SMALL), one)


def test_a_chosen_number_of_splits_is_the_one_of_the_plain_function(make_case):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=1, sk=700)
    config = LaunchConfig(block_m=16, block_n=64)
    resident = resident_programs(config, case.q.device, d=16, dv=16, dtype=torch.float32)
    chosen = decode_splits(keys=700, programs=4, resident=resident)
    assert chosen > 1
    same(run(case.q, case.k, case.v, config=config), run(case.q, case.k, case.v, n_splits=chosen, config=config))


def test_two_splits_are_the_merge_of_two_attentions(make_case):
    case = make_case(heads=3, sq=4, sk=64)
    config = Configs(forward=SMALL)
    parts = [
        attention(case.q, case.k[:, :, n], case.v[:, :, n], config=config, return_lse=True)
        for n in (slice(32), slice(32, 64))
    ]
    merged = merge(torch.stack([o for o, _ in parts]), torch.stack([lse for _, lse in parts]))
    close(run(case.q, case.k, case.v, n_splits=2, config=SMALL), merged, 1e-6)


def test_a_sequence_depends_on_no_other_for_a_given_number_of_splits(make_case):
    case = make_case(batch=3, heads=4, kv_heads=2, sq=2, sk=80)
    lengths = ints(80, 33, 64)
    whole = run(case.q, case.k, case.v, key_lengths=lengths, n_splits=3)
    for b in range(3):
        alone = slice(b, b + 1)
        got = run(case.q[alone], case.k[alone], case.v[alone], key_lengths=lengths[alone], n_splits=3)
        same(got, [x[alone] for x in whole])
        cut = int(lengths[b])
        same(run(case.q[alone], case.k[alone, :, :cut], case.v[alone, :, :cut], n_splits=3), got)


def test_strides_alignment_and_layout_do_not_matter(make_case):
    case = make_case(batch=2, heads=4, kv_heads=2, sq=2, sk=50, dv=24, dtype=torch.float16)
    wanted = run(case.q, case.k, case.v, n_splits=2)
    views = []
    for x in (case.q, case.k, case.v):
        big = torch.full((*x.shape[:2], x.shape[2] + 2, x.shape[3] + 5), math.nan, dtype=x.dtype)
        views.append(big[:, :, : x.shape[2], 3 : 3 + x.shape[3]].copy_(x))
    same(run(*views, n_splits=2), wanted)
    o, lse = run(*(x.transpose(1, 2).contiguous() for x in (case.q, case.k, case.v)), layout="bshd", n_splits=2)
    assert o.is_contiguous()
    same((o.transpose(1, 2), lse), wanted)


@pytest.mark.parametrize(("batch", "sq", "sk"), [(0, 1, 9), (2, 0, 9), (2, 1, 0)])
def test_empty_axes(make_case, batch, sq, sk):
    case = make_case(batch=batch, heads=4, kv_heads=2, sq=sq, sk=sk)
    o, lse = run(case.q, case.k, case.v)
    assert o.shape == (batch, 4, sq, 16)
    assert bool((o == 0).all())
    assert bool((lse == -INF).all())


@pytest.mark.parametrize("scale", [0.0, -0.7, 100.0])
def test_any_scale(make_case, scale):
    case = make_case(heads=4, kv_heads=2, sq=1, sk=50)
    got = run(case.q, case.k, case.v, scale=scale, n_splits=2, config=SMALL)
    wanted = exact(case.q, case.k, case.v, visible(1, 1, 50), scale)
    close([x.double() for x in got], wanted, 4e-5 if scale == 100.0 else 4e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("width", [8, 64, 72, 128, 192, 256])
def test_every_default_configuration_can_be_launched(dtype, width):
    for rows in (1, 17, 33, 1000):
        for limit in (99 * 1024, 163 * 1024, 227 * 1024):
            config = decode_config(d=width, dv=width, dtype=dtype, rows=rows, limit=limit)
            assert config_error("forward", config, d=width, dv=width, dtype=dtype, limit=limit) is None


def test_splits_fill_the_device_and_no_more_than_the_keys_give():
    resident = 2 * PROCESSORS
    for programs in range(0, 3000, 7):
        for keys in (1, 128, 1000, 4096, 32768, 2**20):
            splits = decode_splits(keys=keys, programs=programs, resident=resident)
            assert 1 <= splits <= max(min(keys // 128, 128), 1)
            if keys == 2**20 and programs > 2:
                waves = programs * splits / resident
                assert waves / math.ceil(waves) > 0.8


class Arguments(dict):
    def __init__(self):
        zeros = torch.zeros
        super().__init__(q=zeros(2, 4, 3, 8), k=zeros(2, 2, 9, 8), v=zeros(2, 2, 9, 8))


PAGES = {"k": (5, 4, 2, 8), "v": (5, 4, 2, 8)}
BAD = [
    ({"q": None}, TypeError, "q: expected a tensor, got NoneType"),
    ({"k": (2, 9, 8)}, ValueError, r"k: expected 4 axes, got shape \(2, 9, 8\)"),
    ({"k": (2, 2, 9, 16)}, ValueError, r"k: expected shape \(2, 2, 9, 8\).*got \(2, 2, 9, 16\)"),
    ({"q": (2, 3, 3, 8)}, ValueError, "q: 3 query heads are not a multiple of 2 kv heads"),
    ({"q": (2, 4, 3, 12), "k": (2, 2, 9, 12)}, ValueError, "q: the head dimension must be a multiple of 8.*got 12"),
    ({"n_splits": 0}, ValueError, "n_splits: expected 1 to 1024, got 0"),
    ({"n_splits": 2.0}, TypeError, r"n_splits: expected a whole number, got 2.0 \(float\)"),
    ({"causal": "bottom"}, ValueError, "causal: expected one of None, 'top-left', 'bottom-right', got 'bottom'"),
    ({"window": (-1, None)}, ValueError, r"window: .*got \(-1, None\)"),
    ({"layout": "sbhd"}, ValueError, "layout: expected one of 'bhsd', 'bshd', got 'sbhd'"),
    ({"precision": "fp8"}, ValueError, "precision: expected one of 'ieee', 'tf32', 'tf32x3', got 'fp8'"),
    ({"scale": math.inf}, ValueError, "scale: expected a finite fp32 number, got inf"),
    ({"key_lengths": ints(9, 10)}, ValueError, r"key_lengths: expected values from 0 to 9, got \[9, 10\]"),
    ({"key_lengths": ints(9)}, ValueError, r"key_lengths: expected shape \(2,\), got \(1,\)"),
    ({"tree": TreeMask.from_parents([-1])}, ValueError, "tree: expected the bits of 3 nodes"),
    (
        {"tree": TreeMask.from_parents([-1, 0, 1]), "causal": "top-left"},
        ValueError,
        "tree: cannot be combined with causal=",
    ),
    ({"tree": [0]}, TypeError, "tree: expected a TreeMask or a Bitmap, got list"),
    ({"config": 16}, TypeError, "config: expected a LaunchConfig, got int"),
    (
        {"config": replace(SMALL, block_m=8)},
        ValueError,
        "config: block_m: expected a power of two from 16 to 256, got 8",
    ),
    ({**PAGES, "block_table": ints(0, 1)}, ValueError, r"block_table: expected 2 axes .*got shape \(2,\)"),
    (
        {**PAGES, "block_table": ints(0, 1, 2)[:, None]},
        ValueError,
        r"block_table: expected shape \(2, 1\), got \(3, 1\)",
    ),
    ({**PAGES, "block_table": torch.zeros(2, 1)}, TypeError, "block_table: expected torch.int32, got torch.float32"),
    ({**PAGES, "v": (5, 4, 3, 8), "block_table": ints(0, 1)[:, None]}, ValueError, r"k: expected shape \(5, 4, 3, 8\)"),
]


def test_bad_input_is_named():
    for change, error, message in BAD:
        arguments = Arguments()
        for name, value in change.items():
            value = torch.zeros(value) if name in "qkv" and isinstance(value, tuple) else value
            arguments[name] = value.to(arguments["q"].device) if isinstance(value, torch.Tensor) else value
        q, k, v = (arguments.pop(name) for name in "qkv")
        with pytest.raises(error, match=message):
            decode(q, k, v, **arguments)


@pytest.mark.skipif(
    "not __import__('flashverify_kernels').runtime.INTERPRETED", reason="values are checked on the CPU alone"
)
def test_a_page_that_does_not_exist_is_named():
    q, k = torch.zeros(2, 4, 1, 8), torch.zeros(5, 4, 2, 8)
    table = torch.tensor([[0, 9], [5, 9]], dtype=torch.int32)
    with pytest.raises(ValueError, match=r"block_table: expected pages from 0 to 4, got \[5\] for b = 1"):
        decode(q, k, k, block_table=table, key_lengths=ints(4, 3))


def test_it_says_that_it_has_no_backward(make_case):
    case = make_case(heads=2, sq=1, sk=9)
    case.k.requires_grad_()
    with pytest.raises(ValueError, match=r"k: decode has no backward; .*torch.no_grad\(\).*attention"):
        decode(case.q, case.k, case.v)
    with torch.no_grad():
        assert decode(case.q, case.k, case.v).shape == case.q.shape
