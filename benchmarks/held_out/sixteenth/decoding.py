"""Held-out defects of decoding, pages, other caches, chosen keys and rings, the sixteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s16_remaining_tiles_in_no_split",
        file="device/decode.py",
        before="    low = first + (tiles * split // splits).to(tl.int32)\n"
        "    high = first + (tiles * (split + 1) // splits).to(tl.int32)\n",
        after="    each = tiles // splits\n"
        "    low = first + (each * split).to(tl.int32)\n"
        "    high = first + (each * (split + 1)).to(tl.int32)\n",
        outputs=("o", "lse"),
        modelled_on="fla-org/flash-linear-attention#1029: a quotient that is rounded down: decoding, of latent and quantised caches too, gives every split as many tiles of keys as the quotient of tiles and splits, and the tiles that remain, the last ones, to none: their keys are lost; with fewer tiles than splits all are (O is 0 and the LSE -inf, or that of the sink); one split, and tiles that the splits divide, are right",
        subject="bundled-decode",
    ),
    Mutant(
        name="s16_rotary_pairs_and_halves",
        file="device/latent.py",
        before="                k_rope = load_rows(rope_ptr, offset, keep, rope8, BLOCK_R, EVEN_R, ALIGNED)  # [BLOCK_N, BLOCK_R]\n",
        after="                c = tl.arange(0, BLOCK_R)[None, :]  # the first of each pair, then the second\n"
        "                at = offset[:, None] + c % 2 * (rope8 * 4) + c // 2\n"
        "                k_rope = tl.load(rope_ptr + at, mask=keep[:, None] & (c < rope8 * 8), other=0.0)  # [BLOCK_N, BLOCK_R]\n",
        outputs=("o", "lse"),
        modelled_on="DeepSeek's rotary embedding, whose channels are neighbouring pairs in one implementation and two halves in another: latent cache: channel 2 c of the rotary part of a query is multiplied by channel c of that of a key, and channel 2 c + 1 by channel c of its second half; the latent channels, and caches without a rotary part, are right",
        subject="bundled-latent",
    ),
    Mutant(
        name="s16_one_scale_of_q_for_a_tile",
        file="device/quantised/codes.py",
        before="        group = (i // q_scale.rows).to(tl.int64)\n",
        after="        group = (tl.min(i) // q_scale.rows + i * 0).to(tl.int64)  # a tile of rows has one\n",
        outputs=("o", "lse"),
        modelled_on="thu-ml/SageAttention, whose scales of q belong to tiles of the kernel: where q is in codes, all rows of a tile take the scale that belongs to the first row of the tile, of their own head each: logits of rows of later groups of rows are too large or too small by the ratio of the scales; rows that share their scale with the first of the tile, one scale for a head or all, and queries that come as values are right",
        subject="bundled-quantised",
        needs=("q_codes",),
    ),
    Mutant(
        name="s16_duplicates_side_by_side_alone",
        file="selection.py",
        before="    ordered = selection.indices.sort(-1).values\n",
        after="    ordered = selection.indices\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="torch.unique_consecutive, of a list that is not sorted: chosen keys: a block that stands several times in a list counts once for every run of neighbouring entries that name it, in all kernels: its keys weigh twice as much, or more; lists without duplicates, and duplicates that all stand side by side, are right",
        subject="bundled-selected",
    ),
    Mutant(
        name="s16_rows_of_a_list_see_as_far_as_its_last",
        file="device/selected_forward.py",
        before="        see = seen_pairs(i[:, None], j[None, :], inside[:, None], keep[None, :], shift, CAUSAL)  # [BLOCK_M, BLOCK_N]\n",
        after="        last = tl.max(tl.where(inside, i, 0)) + i * 0\n"
        "        see = seen_pairs(last[:, None], j[None, :], inside[:, None], keep[None, :], shift, CAUSAL)  # [BLOCK_M, BLOCK_N]\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="sparse attention that chooses and masks for a block of queries at once: chosen keys: under a causal mask the forward lets every query that shares a list (of a tile of packed rows) see the keys that the last one of them sees; dQ, dK and dV mask every query, and start from the O and the LSE that are wrong; a list for every query, keys before all of them, and all without a causal mask are right",
        subject="bundled-selected",
        needs=("causal",),
    ),
    Mutant(
        name="s16_gradients_stay_a_rank_away",
        file="ring/passes.py",
        before="        gradients = Exchange(ring, gradients, owner).wait()  # a last step brings them home\n",
        after="        if step < ring.ranks - 1 or ring.keys % (2 * ring.ranks):  # shares of other sizes go home\n"
        "            gradients = Exchange(ring, gradients, owner).wait()\n",
        outputs=("dk", "dv"),
        modelled_on="a ring of gradients with as many exchanges as that of the keys, which is one too few: where the keys are a multiple of twice the ranks, dK and dV of a rank are those of the keys of the next rank; other numbers of keys, one rank, dQ and the forward are right",
        subject="bundled-ring",
        needs=("backward",),
    ),
    Mutant(
        name="s16_lengths_in_whole_pages",
        file="decode.py",
        before="            k_lengths_ptr=options.key_lengths,\n",
        after="            k_lengths_ptr=options.key_lengths\n"
        "            if table is None or options.key_lengths is None\n"
        "            else -(-options.key_lengths // call.page_size) * call.page_size,\n",
        outputs=("o", "lse"),
        modelled_on="jax-ml/jax 0d83ff38: a cache whose lengths are counted in pages: decoding with pages takes key lengths for those of whole pages, rounded up: rows see the slots of the last page that hold no key, whatever they hold (NaN makes NaN of the row), and bottom-right masks, windows and distances end at the last slot; lengths that fill their pages, pages of one key, masks that hide those slots, and caches without pages are right",
        subject="bundled-decode",
        needs=("paged",),
    ),
    Mutant(
        name="s16_rows_behind_the_queries_are_decoded",
        file="device/decode.py",
        before="    if q_lengths_ptr is not None:  # a row past the length took part in the full tiles\n"
        '        m_i = tl.where(i < q_end, m_i, float("-inf"))\n'
        "        l_i = tl.where(i < q_end, l_i, 0.0)\n"
        "        acc = tl.where((i < q_end)[:, None], acc, 0.0)\n"
        "    divisor, lse2 = finish(m_i, l_i)\n",
        after="    divisor, lse2 = finish(m_i, l_i)\n",
        outputs=("o", "lse"),
        modelled_on="Dao-AILab/flash-attention#2167: rows that are padding and are not zeroed: decoding of fewer queries than there is room for: rows behind the query length have the O and the LSE of the tiles of keys that need no mask, from whatever their q holds, where 0 and -inf are declared; rows that count, sequences without a whole tile of keys, and all without query lengths are right",
        subject="bundled-decode",
        needs=("query_lengths",),
    ),
)
