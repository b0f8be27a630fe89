"""Strides, alignment and layouts of the tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.probing.topics.looks import looked

if TYPE_CHECKING:
    from flashverify.probing.notebook import Notebook
    from flashverify.probing.words import Words

__all__ = ["storage"]

_KINDS: dict[str, Words] = {
    "layouts": {"layout": "bshd"},
    "gaps": {"gap": 8},
    "unaligned": {"offset": 1, "gap": 3},
    "expand": {"expand": "yes"},
}
_WORDS = {
    "layouts": "q, k and v whose heads lie inside their rows",
    "gaps": "rows with gaps between them",
    "unaligned": "pointers and strides that are no multiple of 16 bytes",
    "expand": "k and v with stride 0 over heads",
}


def storage(notebook: Notebook) -> None:
    """Which of them run; where all of them raise, tensors must be contiguous."""
    heads: Words = {"heads_q": 2, "heads_kv": 2} if notebook.base["heads_kv"] == 1 else {}
    raised = []
    for name, words in _KINDS.items():
        case = words | heads
        if name == "layouts" and notebook.base.get("layout") == "bshd":
            case = case | {"layout": "bhsd"}
        seen = notebook.seen(case)
        if not seen.ran:
            raised.append((name, seen.raised or seen.unusable))
        elif notebook.verdict(seen) == "wrong":
            only = f"layouts=('{notebook.base.get('layout', 'bhsd')}',), contiguous=True"
            notebook.suspect(_WORDS[name], seen.failure, case, declare=f"Supports({only})")
    own = str(notebook.base.get("layout", "bhsd"))
    if len(raised) == len(_KINDS) - 1 or len(raised) == len(_KINDS):
        notebook.infer("supports", "contiguous", True, f"other tensors raise: {raised[0][1]}")
        if own != "bhsd":
            notebook.infer("supports", "layouts", (own,), "the other layout raises")
        notebook.contiguous = True
        return
    for name, why in raised:
        notebook.infer("supports", name, (own,) if name == "layouts" else False, why)
    notebook.settled("supports", "contiguous", *_KINDS)
    _strided_vectors(notebook)
    _transposed(notebook)
    for kind in ("expanded", "transposed") if notebook.gradients else ():
        turned: Words = {"backward": "yes", "do": kind}
        seen = notebook.seen(turned)
        if seen.ran and notebook.verdict(seen) == "wrong":
            notebook.suspect(f"a dO that is {kind}", seen.failure, turned)
        elif not seen.ran:
            notebook.notes.append(f"a dO that is {kind} raises: {seen.raised}; contiguous=True leaves it out")


def _transposed(notebook: Notebook) -> None:
    """Q, k and v whose last axis is not contiguous."""
    if "page_size" in notebook.base:
        return
    case: Words = {"transposed": "yes"}
    seen = notebook.seen(case)
    if notebook.verdict(seen) == "right":
        notebook.infer("supports", "transposed", True, "q, k and v whose last axis is not contiguous are read right")
    elif notebook.verdict(seen) == "wrong":
        notebook.notes.append(
            "q, k and v whose last axis is not contiguous are read wrong: transposed=False leaves it out"
        )


def _strided_vectors(notebook: Notebook) -> None:
    """Slopes, sinks and dLSE with any strides."""
    has = notebook.values.get(("supports", "logits"), ())
    for name, words in (("sink", {"sink": "yes"}), ("alibi", {"alibi": "yes"})):
        if name not in has:
            continue
        case: Words = {**words, "strided": "yes"}
        seen = notebook.seen(case)
        if notebook.verdict(seen) == "right" and looked(seen, name) != "no":
            notebook.infer("supports", "strided", True, f"a strided {name} is read right")
        elif notebook.verdict(seen) == "wrong":
            notebook.notes.append(f"a strided {name} is read wrong: strided=False leaves it out")
        return
