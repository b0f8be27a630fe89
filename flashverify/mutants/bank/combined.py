"""Defects of parts that stand together: trees with causal or a window, blocks over packed sequences, a bias with pages."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["COMBINED"]

COMBINED = (
    Mutant(
        name="tree_forgotten_beside_a_band",
        file="masking.py",
        before="words = _tree_words(options, extent, _all_keys(extent) if words is None else words)",
        after="words = _all_keys(extent) if words is None else words",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="a custom mask that is dropped where a causal flag is given as well",
        needs=("tree", "causal"),
        semantics="tree-as-chain",
    ),
    Mutant(
        name="window_without_causal_forgotten_beside_a_tree",
        file="masking.py",
        before="if options.tree is not None and (options.causal is not None or options.window is not None):",
        after="if options.tree is not None and options.causal is not None:",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="a sliding window that is applied on the path without a custom mask alone",
        needs=("tree", "window"),
        semantics="window-ignored",
    ),
    Mutant(
        name="window_forgotten_in_a_decoded_tree",
        file="decode_parts.py",
        before="flags=flags | mask.flags & LOWER.value",
        after="flags=flags",
        outputs=("o", "lse"),
        modelled_on="the verification of a draft tree sees past the sliding window of its layer",
        subject="bundled-decode",
        needs=("tree", "window"),
    ),
    Mutant(
        name="window_of_a_decoded_tree_one_short",
        file="decode_parts.py",
        before="left=mask.left, align_end=True",
        after="left=max(mask.left - 1, 0), align_end=True",
        outputs=("o", "lse"),
        modelled_on="a window of w keys that counts the row's own or does not",
        subject="bundled-decode",
        needs=("tree", "window"),
    ),
    Mutant(
        name="blocks_counted_from_each_sequence",
        file="packed_blocks.py",
        before="first = packed.cu_k[:-1].long()[sequence][:, None] + WORD",
        after="first = packed.cu_k[:-1].long()[sequence][:, None] * 0 + WORD",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="a block mask of the whole buffer that is read by positions within a document",
        needs=("packed", "blocks"),
    ),
    Mutant(
        name="rows_of_blocks_counted_from_each_sequence",
        file="packed_blocks.py",
        before="row = (i // blocks.rows)[:, None]",
        after="row = ((i - packed.cu_q[:-1][sequence]) // blocks.rows)[:, None]",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="the same of the rows: each document takes the pattern of the first rows",
        needs=("packed", "blocks"),
    ),
    Mutant(
        name="blocks_forgotten_beside_a_bitmap",
        file="masking.py",
        before="blocks, words = None, bits if words is None else words & bits",
        after="blocks, words = None, bits if words is None else words",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="of two masks that one table holds the first one alone is kept",
        needs=("packed", "blocks", "bitmap"),
        semantics="blocks-ignored",
    ),
    Mutant(
        name="bias_by_the_place_in_the_page",
        file="device/decode.py",
        before="z = logits(dot, i[:, None], j[None, :], q_end, k_end, terms, head, part != FULL)",
        after="z = logits(dot, i[:, None], (j if PAGED == CONTIGUOUS else j % pages.size)[None, :], q_end, k_end, terms, head, part != FULL)",
        outputs=("o", "lse"),
        modelled_on="a bias indexed by the slot of a key in its page, not by its position",
        subject="bundled-decode",
        needs=("bias", "paged"),
    ),
)
