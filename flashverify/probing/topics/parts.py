"""Whether a subject has a part of the mask or a modifier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.probing.topics.looks import looked

if TYPE_CHECKING:
    from flashverify.probing.answers import Seen
    from flashverify.probing.notebook import Notebook
    from flashverify.probing.words import Words

__all__ = ["add_mask", "has_mask", "has_part"]


def has_part(
    notebook: Notebook, part: str, seen: Seen, words: Words, *, kind: str = "masks", declare: str = ""
) -> bool:
    """Whether the subject has a part of the mask or a modifier, by one case of it with the reading `without`.

    A part that the subject never looks at is none that it has. One that it looks at and that changes nothing looks like a defect; so does a
    wrong value, which is declared all the same so that the checks find it.

    Args:
        notebook: of the probe.
        part: its name, as in `Supports`.
        seen: of the case.
        words: of the case.
        kind: the field of `Supports` that names such parts.
        declare: what an author who means a wrong value has to declare.
    """
    verdict, look = notebook.verdict(seen), looked(seen, part)
    declared = notebook.stated("supports") and f"'{part}'" in notebook.loaded.declared["supports"].get(kind, "")
    if verdict == "raises" or look == "no":
        return False
    if verdict == "right" and look == "perhaps" and seen.readings["without"].right:
        notebook.undecided.append(f"{part}: every output is as it would be without it")
        return False
    if verdict == "without":
        if declared or (look == "yes" and not notebook.stated("supports")):
            notebook.suspect(
                part, f"{part} is handed over, and the outputs are those without it", words, declare=declare
            )
            return True
        notebook.notes.append(f"{part} changes nothing: the outputs are those without it")
        return False
    if verdict == "wrong":
        notebook.suspect(part, seen.failure, words, declare=declare)
    return True


def add_mask(notebook: Notebook, part: str, why: str) -> None:
    """Notes a part of the mask."""
    found = (*notebook.values.get(("supports", "masks"), ()), part)
    notebook.infer("supports", "masks", tuple(dict.fromkeys(found)), why)


def has_mask(notebook: Notebook, part: str) -> bool:
    """Whether a part of the mask was found before."""
    return part in notebook.values.get(("supports", "masks"), ())
