"""The other parts of the mask, pages, and which parts may stand together."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from flashverify.probing.topics.looks import looked
from flashverify.probing.topics.parts import add_mask, has_mask, has_part
from flashverify.probing.words import Refusal

if TYPE_CHECKING:
    from flashverify.probing.notebook import Notebook
    from flashverify.probing.words import Words

__all__ = ["combined_parts", "other_masks"]

_SINGLE: dict[str, Words] = {
    "window": {"window": "12,*"},
    "softcap": {"softcap": 2},
    "alibi": {"alibi": "yes"},
    "bias": {"bias": "full"},
    "sink": {"sink": "yes"},
    "relative_bias": {"relative_bias": "8,16"},
}
_ROWS, _KEYS = 24, 40


def other_masks(notebook: Notebook) -> None:
    """Lengths, packed sequences, trees, patterns, prefixes and pages."""
    for part, words in _parts(notebook):
        key = next(iter(words))
        if key in notebook.base or (part == "prefix_lengths" and not has_mask(notebook, "causal")):
            if key in notebook.base and part != "pages":
                add_mask(notebook, part, "the plainest case has it")
            continue
        case = notebook.lengths(_ROWS, _KEYS) | words
        without: Words = {name: None for name in words if name not in ("causal", "batch", "seq_q", "seq_k")}
        seen = notebook.seen(case, {"without": without})
        if part == "pages":
            if seen.ran and looked(seen, "pages") != "no" and notebook.seen(case, pages_alone=True).right:
                _pages(notebook, case)
        elif has_part(notebook, part, seen, case):
            add_mask(notebook, part, "its cases run")
            if part == "tree":
                _entry_trees(notebook, case)


def _entry_trees(notebook: Notebook, words: Words) -> None:
    """Whether the entries of a batch may have a tree each, which a kernel with one tree for all reads wrong or refuses."""
    chain = ",".join(str(node - 1) for node in range(str(words["tree"]).count(",") + 1))
    if (
        chain != words["tree"]
        and notebook.verdict(notebook.seen(words | {"batch": 2, "tree": f"{words['tree']}/{chain}"})) == "right"
    ):
        notebook.infer("supports", "entry_trees", True, "a tree for each entry of a batch is read right")


def _parts(notebook: Notebook) -> list[tuple[str, Words]]:
    shape = notebook.lengths(_ROWS, _KEYS)
    q, k = int(str(shape["seq_q"])), int(str(shape["seq_k"]))
    step = notebook.multiple
    causal = next(iter(notebook.values.get(("supports", "causal"), ("top-left",))))
    nodes = ",".join(str(n // 2 - (n == 0)) for n in range(q)) if q > 1 else "-1"
    return [
        ("key_lengths", {"klen": f"{k},{max(1, k - 17)}", "batch": 2}),
        ("query_lengths", {"qlen": f"{q},{max(1, q - 7)}", "batch": 2}),
        (
            "packed",
            {
                "packed": f"0,{step * 5},{q + step * 5}/0,{step * 3},{k + step * 3}",
                "seq_q": q + step * 5,
                "seq_k": k + step * 3,
            },
        ),
        ("tree", {"tree": nodes}),
        ("blocks", {"blocks": "16,16,128,3"}),
        ("bitmap", {"bitmap": "160,3"}),
        ("prefix_lengths", {"prefix": f"{min(9, k)}", "causal": causal}),
        ("pages", {"page_size": 16}),
    ]


def _pages(notebook: Notebook, words: Words) -> None:
    sizes = []
    for size in (1, 16, 32, 64, 128):
        case = words | {"page_size": size}
        seen = notebook.seen(case)
        if not seen.ran:
            continue
        sizes.append(size)
        if notebook.verdict(seen) == "wrong":
            notebook.suspect("pages", seen.failure, case)
    notebook.infer("supports", "page_sizes", tuple(sizes), "those of 1, 16, 32, 64 and 128 that run")


def combined_parts(notebook: Notebook) -> None:
    """Whether two parts of the mask, or one and a modifier, may stand together."""
    masks = [part for part in notebook.values.get(("supports", "masks"), ()) if part != "prefix_lengths"]
    logits = notebook.values.get(("supports", "logits"), ())
    words = dict(_parts(notebook)) | _SINGLE
    words["causal"] = {"causal": next(iter(notebook.values.get(("supports", "causal"), ("top-left",))))}
    ran, refused = 0, []
    pairs = [*itertools.combinations(masks, 2), *itertools.product(masks, logits)]
    for one, two in pairs:
        case = notebook.lengths(_ROWS, _KEYS) | words[one] | words[two]
        seen = notebook.seen(case)
        if seen.ran:
            ran += two in masks
            if notebook.verdict(seen) == "wrong":
                notebook.suspect(f"{one} with {two}", seen.failure, case)
        elif not seen.raised.startswith("no such case"):
            refused.append({one, two})
    if refused and not ran and not notebook.values.get(("supports", "required_masks")):
        notebook.infer("supports", "combine_masks", False, "two parts together raise")
        refused = [pair for pair in refused if pair & set(logits)]
    if refused:
        _refuse(notebook, refused)
    notebook.settled("supports", "combine_masks")


def _refuse(notebook: Notebook, pairs: list[set[str]]) -> None:
    shown = "; ".join(" with ".join(sorted(pair)) for pair in pairs)
    code = f"any(pair <= case.mask.parts() | case.logits.names() for pair in {pairs})"
    notebook.notes.append(f"parts that raise together: {shown}")
    notebook.refusals.append(
        Refusal(
            code=code,
            reason="parts that raise together",
            refuses=lambda case: any(pair <= case.mask.parts() | case.logits.names() for pair in pairs),
        )
    )
