"""Defects of codes and scales in the pages of a cache."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["PAGES"]

PAGES = (
    Mutant(
        name="scale_by_the_key_in_pages",
        file="device/quantised/codes.py",
        before="return load_groups(codes.scale, b, hk, page, slot, keep, codes.keys_per_scale)",
        after="return load_groups(codes.scale, b, hk, page, j, keep, codes.keys_per_scale)",
        outputs=("o", "lse"),
        modelled_on="scales of a paged cache read by the number of the key, not by its place in the page",
        subject="bundled-quantised-decode",
        needs=("paged", "token_scales"),
    ),
    Mutant(
        name="scale_of_another_page",
        file="device/quantised/codes.py",
        before="offset += page.to(tl.int64) * groups.page",
        after="offset += (page * 0 + b).to(tl.int64) * groups.page",
        outputs=("o", "lse"),
        modelled_on="the pool of scales indexed by sequence, that of codes by page",
        subject="bundled-quantised-decode",
        needs=("paged", "token_scales"),
    ),
    Mutant(
        name="codes_of_the_next_page",
        file="device/quantised/codes.py",
        before="page = tl.load(codes.pages.ptr + b.to(tl.int64) * codes.pages.batch + j // codes.pages.size, mask=keep, other=0)",
        after="page = tl.load(codes.pages.ptr + b.to(tl.int64) * codes.pages.batch + j // 16, mask=keep, other=0)",
        outputs=("o", "lse", "codes", "k_codes", "v_codes"),
        modelled_on="the page size of the engine taken for that of the cache",
        subject="bundled-quantised-decode",
        needs=("paged",),
    ),
)
