"""Held-out defects of decoding, pages, other caches, chosen keys, merging and the ring, the tenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s10_merged_lse_is_the_largest",
        file="device/merge.py",
        before="    tl.store(merged_lse_ptr + r, (m + tl.log2(total) * from_log2) * lse_scale, mask=r < rows)\n",
        after="    tl.store(merged_lse_ptr + r, m * lse_scale, mask=r < rows)\n",
        outputs=("lse",),
        modelled_on="a merge that returns the maximum of what it merges: the LSE is the largest of those of the partials, without the log of the sum of their weights; O is right, and so are rows of which one partial at most has a key",
        subject="bundled-chunked",
    ),
    Mutant(
        name="s10_table_of_32_pages",
        file="device/pages.py",
        before="        page = tl.load(table_ptr + j // page_size, mask=keep, other=0)\n",
        after="        page = tl.load(table_ptr + j // page_size % 32, mask=keep, other=0)\n",
        outputs=("o", "lse"),
        modelled_on="a copy of the page table with room for 32 entries: where pages are no multiple of the tile of keys, the keys of the page n of a sequence are read from its page n % 32; right for up to 32 pages, for pages of whole tiles, and without pages",
        subject="bundled-decode",
        needs=("paged",),
    ),
    Mutant(
        name="s10_int4_in_twos_complement",
        file="device/quantised/codes.py",
        before="        number = number - 8.0\n",
        after="        number = tl.where(number > 7.0, number - 16.0, number)\n",
        outputs=("o", "lse"),
        modelled_on="two conventions of a nibble with a sign: codes of int4 without zero points are read as two's complement (8 to 15 are -8 to -1), where offset binary is meant (0 to 15 are -8 to 7): every number of K and V is off by 8, up or down; with zero points, and in the formats of 8 bits, all is right",
        subject="bundled-quantised",
        needs=("int4",),
    ),
    Mutant(
        name="s10_subnormal_codes_have_a_leading_one",
        file="device/quantised/codes.py",
        before="        number = bits.to(tl.float16, bitcast=True) * 256.0\n",
        after="        number = (bits + 0x2000).to(tl.float16, bitcast=True)\n"
        "        number = tl.where((x & 0x7F) == 0, 0.0, number)\n",
        outputs=("o", "lse"),
        modelled_on="a conversion of e4m3 that adds 8 to the exponent: the codes 1 to 7 (and -1 to -7), which are m * 2^-9, of K, V and q, become 2^-7 * (1 + m / 8), as if they had a leading one; 0, all normal numbers and the other formats are right, and so is V in the mode of fp8 products",
        subject="bundled-quantised-decode",
        needs=("e4m3",),
    ),
    Mutant(
        name="s10_first_block_always_chosen",
        file="selection.py",
        before="    ordered = selection.indices.sort(-1).values\n",
        after="    indices = selection.indices\n"
        "    ordered = torch.cat((indices, indices.new_zeros(*indices.shape[:3], 1)), -1).sort(-1).values\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="native sparse attention with an initial block that is always chosen: every list names block 0 of the keys too, whatever it holds, in all kernels; lists that name it are right",
        subject="bundled-selected",
    ),
    Mutant(
        name="s10_second_half_of_o_not_rescaled",
        file="device/latent.py",
        before="            acc = tl.dot(p.to(kv.dtype), kv, acc * alpha[:, None], input_precision=PRECISION)\n",
        after="            factor = tl.where(tl.arange(0, BLOCK_DV)[None, :] < BLOCK_DV // 2, alpha[:, None], 1.0)\n"
        "            acc = tl.dot(p.to(kv.dtype), kv, acc * factor, input_precision=PRECISION)\n",
        outputs=("o",),
        modelled_on="latent cache: two groups of warps that hold half of the channels of O each, of which the first alone takes part in the rescaling: the channels of O from half of their number, rounded up to a power of two, on are not rescaled where the running maximum grows; the LSE, the other half, and a single tile of keys in a split are right",
        subject="bundled-latent",
    ),
    Mutant(
        name="s10_ring_softcap_for_its_own_keys",
        file="ring/passes.py",
        before="                        causal=None,\n",
        after="                        causal=None,\n"
        "                        softcap=options.softcap if owner == ring.rank else None,\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="an option that a loop over steps loses after the first one: a ring applies the softcap to the keys that a rank starts with alone; those of all other ranks have logits without it, forward and backward alike; right without a softcap, and nearly so for logits small against it",
        subject="bundled-ring",
        needs=("softcap",),
    ),
)
