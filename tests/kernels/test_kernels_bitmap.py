import pytest
import torch

from flashverify_kernels import Bitmap, attention


def drawn(*shape, share=0.5, seed=0):
    rng = torch.Generator("cpu").manual_seed(seed)
    return torch.rand(shape, generator=rng, device="cpu").lt(share)


def put(x):
    return Bitmap.from_bool(x.to(torch.zeros(()).device))


@pytest.mark.parametrize(("batch", "heads"), [(1, 1), (2, 1), (1, 4), (2, 4)])
@pytest.mark.parametrize("share", [0.02, 0.5])
def test_bitmaps_agree_with_the_definition(make_case, blocks, batch, heads, share):
    bits = drawn(batch, heads, 35, 70, share=share)
    case = make_case(batch=2, heads=4, kv_heads=2, sq=35, sk=70)
    case.check(bits.expand(2, 4, -1, -1).to(case.q.device), bitmap=put(bits), config=blocks(16, 32))


@pytest.mark.parametrize("causal", [None, "top-left", "bottom-right"])
def test_a_bitmap_of_half_precision_meets_every_other_part(make_case, see, blocks, causal):
    queries, lengths, window = [30, 45], [61, 33], (20, 30)
    bits = drawn(1, 2, 45, 64)
    case = make_case(batch=2, heads=2, kv_heads=1, sq=45, sk=64, d=32, dtype=torch.float16)
    band = see(2, 45, 64, causal, lengths, window=window, queries=queries)
    case.check(
        band & bits.to(band.device),
        causal=causal,
        window=window,
        query_lengths=torch.tensor(queries, dtype=torch.int32),
        key_lengths=torch.tensor(lengths, dtype=torch.int32),
        bitmap=put(bits),
        config=blocks(32, 16),
    )


def test_a_bitmap_of_ones_is_none_bit_for_bit(make_case, blocks):
    case = make_case(heads=2, kv_heads=1, sq=35, sk=70)
    plain = case.run(config=blocks(16, 32))
    masked = case.run(bitmap=put(torch.ones(1, 1, 35, 70, dtype=torch.bool)), config=blocks(16, 32))
    for name, x in plain.items():
        assert torch.equal(masked[name], x), name


def test_a_causal_bitmap_is_causal_bit_for_bit(make_case, see, blocks):
    case = make_case(sq=35, sk=70)
    causal = case.run(causal="bottom-right", config=blocks(16, 32))
    masked = case.run(bitmap=Bitmap.from_bool(see(1, 35, 70, "bottom-right")), config=blocks(16, 32))
    for name, x in causal.items():
        assert torch.equal(masked[name], x), name


def test_tiles_that_no_query_sees_are_not_read(make_case, blocks):
    bits = torch.eye(64, dtype=torch.bool)[None, None]
    case = make_case(sq=64, sk=64)
    options = {"bitmap": Bitmap.from_bool(bits), "config": blocks(16, 16)}
    clean = case.run(**options)
    case.k[:, :, :16] = torch.nan
    poisoned = case.run(**options)
    for name in ("o", "dq", "dv"):
        assert torch.equal(poisoned[name][:, :, 16:], clean[name][:, :, 16:]), name


def test_bits_are_packed_by_pair():
    see = drawn(2, 3, 5, 70)
    words = Bitmap.from_bool(see).words
    assert tuple(words.shape) == (2, 3, 5, 3)
    for j in range(96):
        bit = (words[..., j // 32] >> (j % 32)) & 1
        expected = see[..., j].int() if j < 70 else torch.zeros_like(bit)
        assert torch.equal(bit.cpu(), expected.cpu())


def test_what_is_shared_by_expanding_is_packed_once():
    see = torch.ones(1, 1, 5, 7, dtype=torch.bool).expand(2, 3, 5, 7)
    assert tuple(Bitmap.from_bool(see).words.shape) == (1, 1, 5, 1)


def test_bitmaps_are_refused_by_name_and_value():
    q = torch.zeros(2, 2, 4, 8)
    with pytest.raises(TypeError, match=r"see: expected a bool tensor, got torch\.float32"):
        Bitmap.from_bool(torch.zeros(1, 1, 4, 4))
    with pytest.raises(ValueError, match="see: expected 4 axes"):
        Bitmap.from_bool(torch.ones(4, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="words: expected an int32 tensor"):
        Bitmap(torch.zeros(4, 4, dtype=torch.int32))
    with pytest.raises(TypeError, match="bitmap: expected a Bitmap, got Tensor"):
        attention(q, q, q, bitmap=torch.ones(4, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"bitmap: expected shape \(2 or 1, 2 or 1, 4, 1\).*, got \(1, 1, 5, 1\)"):
        attention(q, q, q, bitmap=put(torch.ones(1, 1, 5, 4, dtype=torch.bool)))
    with pytest.raises(ValueError, match=r"bitmap: expected shape \(2 or 1, 2 or 1, 4, 1\).*, got \(1, 1, 4, 2\)"):
        attention(q, q, q, bitmap=put(torch.ones(1, 1, 4, 33, dtype=torch.bool)))
