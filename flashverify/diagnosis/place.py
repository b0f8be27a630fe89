"""Where an output is wrong, in words: from the map of its failing elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.checks.sanitizer import explained
from flashverify.judge.wording import plural
from flashverify.outputs import output as output_spec

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["first_line", "place_of"]

_TILES = (128, 64, 32, 16)
_BEGIN = "non-finite values begin with: "


def place_of(scene: Scene, failing: dict[str, Tensor], output: str) -> str:
    """One sentence on where `output`, or the first failing output, is wrong, and which others are."""
    name = output if output in failing else next(iter(failing))
    wrong = failing[name]
    total = int(wrong.sum())
    words = [f"{name}: {total} of {wrong.numel()} elements are wrong"]
    if (axis := output_spec(name).along) is not None:
        words += _axes(scene, axis, wrong)
    others = [other for other in failing if other != name]
    right = [other for other in scene.right if other not in failing]
    if others:
        words.append(f"also wrong: {', '.join(others)}")
    if right:
        words.append(f"right: {', '.join(right)}")
    return "; ".join(words)


def _axes(scene: Scene, axis: str, wrong: Tensor) -> list[str]:
    first = [int(x) for x in wrong.nonzero()[0]]
    found = [f"the first at {first}"]
    lines = wrong if wrong.dim() == 3 else wrong.any(-1)
    at = [int(x) for x in lines.any(0).any(0).nonzero()[:, 0]]
    count = wrong.shape[2]
    found.append(_some(axis, at, count))
    found += _tiles(scene, axis, at, count)
    for number, label in ((0, "sequence"), (1, "head")):
        size = wrong.shape[number]
        index = [int(x) for x in wrong.movedim(number, 0).flatten(1).any(1).nonzero()[:, 0]]
        if size > 1:
            found.append(_some(label, index, size))
    if wrong.dim() == 4:
        channels = [int(x) for x in wrong.flatten(0, 2).any(0).nonzero()[:, 0]]
        if len(channels) < wrong.shape[3]:
            found.append(_some("channel", channels, wrong.shape[3]))
    return found


def _tiles(scene: Scene, axis: str, at: list[int], count: int) -> list[str]:
    """What the wrong rows or keys have in common."""
    found = []
    empty = scene.truth.empty_rows
    if axis == "row":
        if all(bool(empty[:, :, n].any()) for n in at):
            found.append("all of them rows that see no key")
        elif scene.inputs.visible is not None:
            visible = scene.inputs.visible.expand(*scene.case.shape_q[:3], scene.case.seq_k)
            seen = visible[:, :, at[0]].sum(-1)
            found.append(f"the first of them sees {plural(int(seen.max()), 'key')}")
    size = next((t for t in _TILES if t < count and at[0] >= count // t * t), None)
    if size is not None and at[0] > 0:
        found.append(f"only behind the last multiple of {size}, the tail")
    elif at[0] > 0:
        size = next((t for t in _TILES if at[0] % t == 0), None)
        if size is not None:
            found.append(f"beginning at a multiple of {size}")
    return found


def _some(label: str, at: list[int], count: int) -> str:
    """`row 0 of 2`, `rows 0-3 of 8`, `every row`."""
    if len(at) == count:
        return f"every {label}"
    return f"{label if len(at) == 1 else label + 's'} {_ranges(at)} of {count}"


def _ranges(numbers: list[int]) -> str:
    """`0-3, 7, 9-12`, shortened."""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in parts]
    return ", ".join(texts[:4]) + (", ..." if len(texts) > 4 else "")


def first_line(subject: Subject, scene: Scene, verdict: Verdict) -> str:
    """Where an interpreted kernel made the first non-finite value; empty where that is not the question or not known."""
    if verdict.error not in ("nan", "inf", "saturation") or verdict.check != "nonfinite":
        return ""
    if _BEGIN not in verdict.message:
        verdict = explained(subject, scene.execution, [verdict])[0]
    _, found, text = verdict.message.partition(_BEGIN)
    return f"{_BEGIN}{text}" if found else ""
