"""What the command prints: the verdict first, then one line a kernel, then every hazard and error once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flashverify.compiling.records import Compilation

__all__ = ["as_json", "as_text", "exit_code"]

_HEAD = ("arch", "kernel", "launch", "registers", "shared", "stack", "spills in loops", "hazards")


def exit_code(found: Sequence[Compilation]) -> int:
    """0 clean, 1 hazards or errors, 3 nothing was compiled."""
    if not any(item.built for item in found):
        return 1 if found else 3
    return int(any(item.error or (item.built and item.built.hazards) for item in found))


def as_json(found: Sequence[Compilation], *, of: int | None = None) -> dict[str, Any]:
    """One JSON object; `of` is how many there were to choose from."""
    return {
        "verdict": _verdict(found, of),
        "compilations": msgspec.to_builtins(list(found)),
        "exit_code": exit_code(found),
    }


def as_text(found: Sequence[Compilation], *, of: int | None = None) -> str:
    """The verdict, the table, the hazards and the errors; `of` is how many there were to choose from."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for item in found:
        built = item.built
        numbers = (
            (built.registers, built.shared, built.stack, built.loop_spills, len(built.hazards))
            if built
            else ("error", "", "", "", "")
        )
        rows.append((item.architecture, item.kernel, item.label, *(str(number) for number in numbers)))
    lines = [_verdict(found, of), "", *_aligned(rows)]
    places: dict[tuple[str, str, str], set[str]] = {}
    for item in found:
        for hazard in item.built.hazards if item.built else ():
            places.setdefault((hazard.kind, hazard.where, hazard.what), set()).add(item.kernel)
    for (kind, where, what), kernels in sorted(places.items()):
        lines += ["", f"{kind}  {where}  in {', '.join(sorted(kernels))}", f"    {what}"]
    failed: dict[str, list[str]] = {}
    for item in found:
        if item.error:
            failed.setdefault(item.error, []).append(f"{item.architecture} {item.kernel} {item.label}")
    for error, names in failed.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        lines += ["", f"error  {names[0]}{more}", f"    {error}"]
    return "\n".join(lines)


def _verdict(found: Sequence[Compilation], of: int | None) -> str:
    built = [item.built for item in found if item.built]
    if not found:
        return "NO VERDICT: nothing was compiled"
    errors = len(found) - len(built)
    hazards = {hazard for item in built for hazard in item.hazards}
    spilling = sum(item.loop_spills > 0 for item in built)
    sample = f" (a sample of {of})" if of is not None and of > len(found) else ""
    if errors or hazards:
        count = f"{len(hazards)} hazard{'s' * (len(hazards) != 1)}, {errors} of {len(found)} compilations failed"
        return f"FAIL: {count}{sample}"
    return f"PASS: {len(found)} compilations without a hazard{sample}; {spilling} spill inside a loop"


def _aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column < 3 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
