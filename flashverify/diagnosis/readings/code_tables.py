"""What a kernel takes each code of K and V for, read off the kernel: of a single key O is its V, and with a one-hot q the LSE is a channel of its K."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from flashverify.case.changes import change
from flashverify.case.masks.mask import Mask
from flashverify.case.memory.materialize import materialize
from flashverify.case.sections import Storage
from flashverify.diagnosis.code_reading import numbers_as, operand_codes
from flashverify.diagnosis.readings.said import Said, listed
from flashverify.outputs import FORWARD
from flashverify.subjects.blame import subject_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["code_tables", "table_words"]

_DIM, _ALL = 64, 256
_NEAR = 2.0**-8
"""Relative distance of a number from the declared one that is its rounding."""
_FEWEST, _EXAMPLES = 2, 3


def code_tables(trials: Trials, scenes: list[Scene]) -> list[Said]:
    """Which codes are taken for other numbers, where every failing case has such a code; empty where all are as declared.

    Args:
        trials: runs of the subject.
        scenes: failing runs of cases in codes; the others that were made are looked at too.
    """
    failing = [scene for scene in trials.scenes.values() if scene.failures.keys() & set(FORWARD)]
    scenes = [scene for scene in dict.fromkeys((*scenes, *failing)) if scene.case.quantised is not None]
    if len(scenes) < _FEWEST:
        return []
    first = scenes[0].case
    how = first.quantised
    assert how is not None
    found: dict[str, list[str]] = {}
    wrong: dict[str, Tensor] = {}
    for name in ("k", "v"):
        table = _table(trials, first, name)
        if table is None:
            continue
        if words := table_words(how.codes, table):
            found.setdefault(words, []).append(name.upper())
            wrong[name] = _off(how.codes, table)
    if not found or not all(_has(scene, how.codes, wrong) for scene in scenes):
        return []
    return [Said(words.format(listed(names)), len(scenes)) for words, names in found.items()]


def _has(scene: Scene, codes: str, wrong: dict[str, Tensor]) -> bool:
    """Whether a case of the format has a code that is taken for another number."""
    if scene.case.quantised is None or scene.case.quantised.codes != codes:
        return False
    return any(bool(off[operand_codes(scene.problem, name).codes.long()].any()) for name, off in wrong.items())


def _table(trials: Trials, case: Case, name: str) -> Tensor | None:
    """What each code of the format is taken for, float64; None where the subject does not tell, or two ways to ask have different answers."""
    how = case.quantised
    assert how is not None
    count = 16 if how.codes == "int4" else _ALL
    answers = []
    for turn in (0, 1):
        table = torch.full((count,), torch.nan, dtype=torch.float64)
        for start in range(0, count, _DIM):
            place = (torch.arange(_DIM) + start) % count
            place = place.flip(0) if turn else place
            read = _asked(trials, case, name, place) if trials.within() else None
            if read is None:
                return None
            table[place] = read
        answers.append(table)
    same = (answers[0] - answers[1]).abs() <= _NEAR * answers[0].abs()
    return answers[0] if bool((same | (answers[0] == answers[1]) | _lost(answers)).all()) else None


def _lost(answers: list[Tensor]) -> Tensor:
    return torch.isnan(answers[0]) & torch.isnan(answers[1])


def _asked(trials: Trials, case: Case, name: str, codes: Tensor) -> Tensor | None:
    """What `codes` are taken for, one a channel of V, or one a sequence of K, where a NaN reaches no other; None where the subject refuses the problem or raises."""
    how = case.quantised
    assert how is not None
    plain = change(
        case,
        batch=_DIM if name == "k" else 1,
        heads_q=1,
        heads_kv=1,
        seq_q=1,
        seq_k=1,
        dim_qk=_DIM,
        dim_v=_DIM,
        mask=Mask(),
        logits=type(case.logits)(),
        storage=Storage(),
        scale=1.0,
        dropout=0.0,
        quantised=replace(how, q=False, zeros=False, scales="tensor"),
        launch=(),
    )
    if plain is None or trials.subject.supports.refusal(plain) is not None:
        return None
    problem, _ = materialize(plain, trials.subject.device())
    given: dict[str, Any] = {"q": torch.zeros_like(problem.q)}
    given |= {f"{each}_scale": torch.ones_like(getattr(problem, f"{each}_scale")) for each in "kv"}
    given |= {f"{each}_codes": torch.zeros_like(getattr(problem, f"{each}_codes")) for each in "kv"}
    channels = torch.zeros(plain.batch, _DIM, dtype=torch.uint8)
    if name == "k":
        place = torch.arange(_DIM)
        channels[place, place % 2] = codes.to(torch.uint8)
        given["q"][place, 0, 0, place % 2] = 1.0
    else:
        channels[0] = codes.to(torch.uint8)
    if how.codes == "int4":
        channels = channels[:, 0::2] | (channels[:, 1::2] << 4)
    given[f"{name}_codes"] = channels.to(problem.q.device).view_as(given[f"{name}_codes"]).contiguous()
    try:
        with subject_code():
            forward = trials.subject.forward(dataclasses.replace(problem, **given))
    except Exception:  # a defect may raise on other values; those say nothing
        return None
    if name == "v":
        return forward.o.detach().cpu().double().flatten() + _middle(how.codes)
    if forward.lse is None:
        return None
    unit = 1.0 if trials.subject.form(plain).lse_base == "e" else float(torch.log(torch.tensor(2.0)))
    return forward.lse.detach().cpu().double().flatten() * unit + _middle(how.codes)


def _middle(name: str) -> float:
    return 8.0 if name == "int4" else 0.0


def _off(name: str, table: Tensor) -> Tensor:
    """Bool: the codes that are taken for another number."""
    declared = _declared(name)
    return ~(((table - declared).abs() <= _NEAR * declared.abs()) | (table == declared) | _lost([table, declared]))


def _declared(name: str) -> Tensor:
    return numbers_as(torch.arange(16 if name == "int4" else _ALL), name).double()


def table_words(name: str, table: Tensor) -> str:
    """In words, which codes a table takes for other numbers, `{}` in place of the operand; empty where it is the declared one."""
    declared, off = _declared(name), _off(name, table)
    if not bool(off.any()):
        return ""
    for words, other in _others(name, declared):
        near = ((table - other).abs() <= _NEAR * other.abs()) | (table == other) | _lost([table, other])
        if bool(near.all()):
            return f"codes of {{}} are read as {words}"
    for words, where in _sets(name, declared):
        if bool((off <= where).all()) and bool((off | ~where | (declared == 0)).all()):
            return f"{words} of {{}} are read as other numbers: {_listed(table, declared, off)}"
    return f"some codes of {{}} are read as other numbers: {_listed(table, declared, off)}"


def _listed(table: Tensor, declared: Tensor, off: Tensor) -> str:
    """Some codes with what they are taken for and what they stand for."""
    places = off.nonzero().flatten().tolist()
    some = places if len(places) <= _EXAMPLES + 1 else [places[0], places[len(places) // 2], places[-1]]
    words = [f"0x{code:02x} as {_number(table[code])}, not {_number(declared[code])}" for code in some]
    return f"{', '.join(words)}" + (f" ({len(places)} of {len(table)})" if len(places) > len(some) else "")


def _number(x: Tensor) -> str:
    return "-0" if float(x) == 0 and bool(torch.signbit(x)) else f"{float(x):.6g}"


def _others(name: str, declared: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Other tables, in words."""
    code = torch.arange(len(declared))
    if name == "int4":
        yield "two's complement", torch.where(code < 8, code, code - 16).double() + 8
        return
    if name == "int8":
        yield "numbers without a sign", code.double()
        yield "a sign and a magnitude", torch.where(code < 128, code, 128 - code).double()
        yield "numbers that are 128 too high", (code - 128).double()
        return
    for words, bias, mantissa in (
        ("e4m3fnuz", 8, 3),
        ("e5m2fnuz", 16, 2),
        ("e4m3", 7, 3),
        ("e5m2", 15, 2),
        ("e3m4", 3, 4),
    ):
        size = code & 0x7F
        exponent, fraction = size >> mantissa, size & ((1 << mantissa) - 1)
        value = torch.ldexp(fraction.double() + (exponent > 0) * 2.0**mantissa, exponent.clamp(min=1) - bias - mantissa)
        value = torch.where(code < 128, value, -value)
        if words.endswith("fnuz"):
            yield words, torch.where(code == 128, torch.nan, value)
        elif not words.startswith(name):
            yield words, value
        elif words == name:
            yield f"{words} without NaN and infinities", value
            yield f"{words} with subnormal numbers as 0", torch.where(exponent == 0, 0.0, declared)
            yield (
                f"{words} with subnormal numbers as normal ones",
                torch.where(
                    (exponent == 0) & (fraction > 0),
                    torch.where(code < 128, 1.0, -1.0)
                    * torch.ldexp(fraction + 2.0**mantissa, exponent - bias - mantissa),
                    declared,
                ),
            )
            yield f"{words} without their sign", declared.abs()
            yield f"{words} times 2", 2 * declared
            yield f"{words} over 2", declared / 2


def _sets(name: str, declared: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Sets of codes, in words."""
    code = torch.arange(len(declared))
    yield "negative codes", declared < 0
    yield "positive codes", declared > 0
    yield "odd codes", code % 2 == 1
    if name in ("e4m3", "e5m2"):
        mantissa = 3 if name == "e4m3" else 2
        exponent = (code & 0x7F) >> mantissa
        yield "codes of subnormal numbers", exponent == 0
        yield "codes with the largest exponent", exponent == exponent.max()
        yield "codes of NaN and infinities", ~torch.isfinite(declared)
