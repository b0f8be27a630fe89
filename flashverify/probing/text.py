"""An inference as lines for a reader."""

from __future__ import annotations

import shlex
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.probing.record import FormRecord, Inference, Suspect

__all__ = ["inference_text"]

_WIDTH = 118
_REFUTED = 3
_OF = {"supports": "Supports", "contract": "Contract", "form": "Form"}


def inference_text(found: Inference) -> str:
    """The declaration to paste, what looks like a defect, the forms, and each field beside the declared one."""
    return "\n".join(_lines(found))


def _lines(found: Inference) -> Iterator[str]:
    yield f"{found.name} ({found.spec}) on {found.evidence}: {found.trials} trials, {found.seconds:g} s"
    if found.lost:
        yield f"{found.lost} of them killed the process or did not end"
    for number, suspect in enumerate(found.suspects, 1):
        yield from _suspect(found, suspect, number)
    yield "\ncode to paste"
    yield from (f"  {line}".rstrip() for line in found.code.splitlines())
    yield from _table(found)
    if found.forms:
        yield "\nnumerical form, fitted on some cases and judged on others"
        yield from (line for form in found.forms for line in _form(form))
    silent = "outside what is declared, it did not raise and was wrong"
    for title, texts in (("undecided", found.undecided), ("notes", found.notes), (silent, found.silent)):
        if texts:
            yield f"\n{title}"
            yield from (line for text in texts for line in _wrapped(text, "  "))
    yield ""
    if found.judged:
        yield f"{found.judged} cases drawn of the inferred declaration, none of which it was inferred from: {len(found.failed)} raised or were wrong"
        yield from (f"  {_replay(found, case)}" for case in found.failed)
    else:
        yield "no case of the inferred declaration was drawn and judged"
    yield _verdict(found)


def _verdict(found: Inference) -> str:
    count = len(found.suspects)
    if count:
        return f"{count} {'thing looks' if count == 1 else 'things look'} like a defect, not like a convention: read the kernel before you declare any of it"
    return "nothing looks like a defect" + ("" if found.finished else ", as far as the time went: --seconds gives more")


def _suspect(found: Inference, suspect: Suspect, number: int) -> Iterator[str]:
    yield f"\nsuspect {number}: {suspect.what}: this looks like a defect, not a convention"
    yield from _wrapped(suspect.sentence, "  ")
    if suspect.diagnosis:
        yield from _wrapped(f"diagnosis: {suspect.name + ': ' if suspect.name else ''}{suspect.diagnosis}", "  ")
    if suspect.declare:
        yield from _wrapped(f"if it is meant, only you can declare it: {suspect.declare}", "  ")
    if suspect.case:
        yield f"  {_replay(found, suspect.case)}"


def _replay(found: Inference, case: str) -> str:
    return f"flashverify replay {shlex.quote(case)} --subject {shlex.quote(found.spec)} --device {found.device}"


def _table(found: Inference) -> Iterator[str]:
    rows = [
        (
            f"{_OF[field.of]}.{field.name}",
            field.declared,
            field.inferred or "-",
            field.verdict,
        )
        for field in found.fields
    ]
    if not rows:
        return
    yield "\nfield by field (declared: by the author, or the default)"
    head = ("field", "declared", "inferred", "")
    widths = [min(40, max(len(row[n]) for row in (head, *rows))) for n in range(3)]
    for row in (head, *rows):
        yield (
            "  "
            + "  ".join(_cut(text, width).ljust(width) for text, width in zip(row, widths, strict=False))
            + f"  {row[3]}"
        ).rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _form(form: FormRecord) -> Iterator[str]:
    shown = form.form or "none that is known"
    worst = ", ".join(f"{name} {ratio:.2g}" for name, ratio in form.worst.items())
    yield from _wrapped(
        f"{form.dtype}: {shown} explains {form.fitted} cases; of {form.held_out} others it fails on {len(form.failed)}; "
        f"worst error beside its bound: {worst}",
        "  ",
    )
    for refuted in form.refuted[:_REFUTED]:
        yield from _wrapped(
            f"{refuted.form} is refuted: {refuted.output} is {refuted.ratio:.4g} times its bound on {refuted.case}",
            "    ",
        )
    if len(form.refuted) > _REFUTED:
        yield f"    and {len(form.refuted) - _REFUTED} more forms"
    if form.tiles:
        yield from _wrapped(
            f"tiles of {form.tiles} keys in ascending order predict every weight of these cases: Form(block_n={form.tiles}, "
            'key_order="ascending") is sharper, if that holds for every case',
            "    ",
        )


def _wrapped(text: str, indent: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ", break_long_words=False)
