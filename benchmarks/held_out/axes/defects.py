"""Defects that only rare shapes, masks and values show, written before these were drawn; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_TREE = """\
        seen: list[int] = []
        if cu is None and len(parents) > 1 and parents.count(-1) == 1 and parents[0] == -1:
            arity = max(parents.count(0), 1)
            parents = [-1, *((node - 1) // arity for node in range(1, len(parents)))]
"""

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s_members_beyond_sixteen",
        file="device/dkdv.py",
        before="for member in range(sizes.group):",
        after="for member in range(tl.minimum(sizes.group, 16)):",
        outputs=("dk", "dv"),
        modelled_on="dK and dV are summed over the first 16 query heads of a group",
        needs=("groups", "backward"),
    ),
    Mutant(
        name="s_group_rounded_to_a_power_of_two",
        file="device/decode.py",
        before="    h = hk.to(tl.int64) * sizes.group + r % sizes.group\n",
        after="    h = hk * sizes.group + r % tl.minimum(sizes.group, 16)\n",
        outputs=(),
        modelled_on="decode packs 16 query heads of a group into a tile and takes the heads beyond for the first ones",
        subject="bundled-decode",
        needs=("groups",),
    ),
    Mutant(
        name="s_large_cap_without_effect",
        file="arguments.py",
        before="call.terms, call.terms.softcap, call.terms.by_distance",
        after="call.terms, call.terms.softcap and min(call.terms.softcap, 64.0), call.terms.by_distance",
        outputs=("o", "lse", "dq", "dk"),
        modelled_on="a softcap above 64 acts as 64: the kernel has a table of caps up to there",
        needs=("softcap",),
    ),
    Mutant(
        name="s_cap_is_a_whole_number",
        file="arguments.py",
        before="call.terms, call.terms.softcap, call.terms.by_distance",
        after="call.terms, call.terms.softcap and max(float(round(call.terms.softcap)), 1.0), call.terms.by_distance",
        outputs=("o", "lse", "dq", "dk"),
        modelled_on="the softcap is passed as an integer, so that a fraction is lost",
        needs=("softcap",),
    ),
    Mutant(
        name="s_one_key_has_no_window",
        file="masking.py",
        before="    if left is not None:\n        flags |= LOWER.value\n",
        after="    if left is not None and extent.max_k > 1:\n        flags |= LOWER.value\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="a fast path for a single key leaves the left side of the window out",
        needs=("window",),
    ),
    Mutant(
        name="s_one_query_reads_no_bitmap",
        file="masking.py",
        before="    words = _check_bitmap(options.bitmap, extent)\n",
        after="    words = _check_bitmap(options.bitmap, extent)\n    words = None if extent.max_q == 1 else words\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="with a single query, as in decoding, the bitmap is taken for one that hides nothing",
        needs=("bitmap",),
    ),
    Mutant(
        name="s_sequences_of_four_bits",
        file="device/forward.py",
        before="    bh = b * sizes.heads + h\n",
        after="    b = b & 15\n    bh = b * sizes.heads + h\n",
        outputs=(),
        modelled_on="the number of the sequence is kept in four bits: with more than 16 the first ones are computed again",
        needs=("packed",),
    ),
    Mutant(
        name="s_ninth_tile_is_not_rescaled",
        file="device/forward.py",
        before="acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)",
        after="acc = tl.dot(p.to(v.dtype), v, acc * tl.where(t == 8 * BLOCK_N, 1.0, alpha[:, None]), input_precision=PRECISION)",
        outputs=("o",),
        modelled_on="a ring of eight buffers wraps around: O is not rescaled at the ninth tile of keys",
    ),
    Mutant(
        name="s_single_root_is_a_complete_tree",
        file="tree.py",
        before="        seen: list[int] = []\n",
        after=_TREE,
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="a tree with one root is taken for the complete one whose nodes have as many children as the root",
        needs=("tree",),
    ),
    Mutant(
        name="s_grid_of_eight_mean_lengths",
        file="validation.py",
        before="else (packed.sequences, packed.max_q, packed.max_k)",
        after="else (packed.sequences, min(packed.max_q, 8 * -(-rows // max(packed.sequences, 1))), packed.max_k)",
        outputs=(),
        modelled_on="the grid of packed sequences covers eight times their mean length: rows of a much longer one are not computed",
        needs=("packed",),
    ),
    Mutant(
        name="s_blocks_in_three_bits",
        file="device/schedule.py",
        before="        block = tl.load(live_ptr + x // size)\n",
        after="        block = tl.load(live_ptr + x // size) & 7\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="the number of a live block is kept in three bits: blocks from the ninth on are taken for the first ones",
        needs=("blocks",),
    ),
    Mutant(
        name="s_keys_in_fifteen_bits",
        file="device/decode.py",
        before="            page, slot = places(table_ptr, n0, j, keep, pages.size, PAGED)\n",
        after="            page, slot = places(table_ptr, n0, j & 16383, keep, pages.size, PAGED)\n",
        outputs=("o", "lse"),
        modelled_on="the number of a key is cut to 14 bits: keys from 16,384 on are taken for the first ones",
        subject="bundled-decode",
    ),
)
