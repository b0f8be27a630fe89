"""Which thing of an earlier call explains a later one: found on one pair of problems, and named after further pairs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from flashverify.diagnosis.place import place_of
from flashverify.diagnosis.state.calling import Called, Way, called, in_reverse
from flashverify.diagnosis.state.candidates import CANDIDATES, Candidate, fitting
from flashverify.diagnosis.state.pairs import fresh_number, kinds_of, pairs
from flashverify.diagnosis.state.wording import joined, name_of, said, sentence
from flashverify.judge.record import Diagnosis
from flashverify.outputs import KERNELS, OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flashverify.case.case import Case
    from flashverify.diagnosis.clock import End
    from flashverify.diagnosis.state.pairs import Pair
    from flashverify.subjects.interface import Subject

__all__ = ["kept_from_earlier"]

_NEEDED = 2
"""Further pairs of problems that a name must explain."""
_SILENT = 2
"""Pairs that are right, or that nothing explains, after which no further pair is tried that differs in the same thing."""
_ASKED = 4
"""Pairs that are tried for one whose first call is right."""
_SAME, _WIDE = "same shapes", "same shapes, with heads and channels that no call had before"


@dataclass(slots=True)
class _Found:
    """Candidates that explain every pair of one kind so far."""

    kind: str
    number: int
    scope: frozenset[str]
    candidates: list[Candidate]
    shown: list[Called]
    wide: bool


def kept_from_earlier(
    subject: Subject, case: Case, error: str, number: int, end: End, *, wide: bool | None = None
) -> Diagnosis | None:
    """Names what the second of two calls computes with that is the first one's; None where no pair of problems shows such a thing.

    Args:
        subject: the kernel under test.
        case: where the check `reuse` fails.
        error: the class of the failure.
        number: of the diagnosis, see `fresh_number`.
        end: after which no further pair is tried.
        wide: whether heads and channels are new too; None for cases with those of `case`, then for others.
    """
    if wide is None:
        usual = kept_from_earlier(subject, case, error, number, end, wide=False)
        return usual or kept_from_earlier(subject, case, error, number, end, wide=True)
    kinds = kinds_of(error)
    asked = [(kind, way) for kind in kinds for way in _ways(kind, error)]
    grown = error == "larger"  # a buffer that grew for another question keeps its size
    asked.sort(key=lambda each: (grown and each[0] != error, each[1] is not Way.HELD, each[0] != kinds[0]))
    for kind, way in asked:
        found = _searched(subject, case, kind, way, number, end, wide)
        if found is not None:
            return _diagnosis(subject, case, found, end)
    return None


def _ways(kind: str, error: str) -> tuple[Way, ...]:
    """Where the later problem of such a pair may lie."""
    if error == "graph":
        return (Way.REPLAYED,)
    if kind == "backward":
        return (Way.BACKWARD,)
    if kind == "larger":
        return (Way.APART,)
    both = (Way.HELD, Way.APART)
    return (*both, Way.ELSEWHERE, Way.MOVED) if kind == "values" else both


def _searched(subject: Subject, case: Case, kind: str, way: Way, number: int, end: End, wide: bool) -> _Found | None:
    """The candidates that explain the first pair that fails and further ones of its kind; None where fewer than two further ones are explained."""
    found: dict[str, _Found] = {}
    silent: Counter[str] = Counter()
    for pair in pairs(subject, case, kind, number, wide=wide):
        if end.over:
            return None
        each = called(subject, pair, way) if silent[pair.what] < _SILENT else None
        if each is None:
            continue
        known = found.get(pair.what)
        if not each.later.failures:
            silent[pair.what] += 1
        elif known is None:
            first = _first_fitting(subject, each)
            if first is None:
                silent[pair.what] += 1
            else:
                found[pair.what] = _Found(kind, number, *first, [each], wide)
        else:
            known.candidates = fitting(tuple(known.candidates), subject, each, known.scope)
            known.shown.append(each)
            if not known.candidates:
                silent[pair.what] = _SILENT
            elif len(known.shown) > _NEEDED:
                known.candidates = _of_earlier_calls(subject, case, known)
                return known if known.candidates else None
    return None


def _of_earlier_calls(subject: Subject, case: Case, found: _Found) -> list[Candidate]:
    """Those that explain no first call: such a call fails in the same way without anything to keep.

    None is left where most later problems of such pairs, of sizes that nobody asked before, are wrong as first calls. No size is new to a
    buffer that grew, and a second backward is no first one.
    """
    if found.kind in ("larger", "backward"):
        return found.candidates
    shown = {(each.pair.what, each.pair.turned) for each in found.shown}
    fresh = pairs(subject, case, found.kind, fresh_number(), wide=found.wide)
    alike = (pair for pair in fresh if (pair.what, pair.turned) in shown)
    left, right = found.candidates, 0
    for pair in islice(_of_new_shapes(alike), _ASKED):
        alone, both = in_reverse(subject, pair)
        right += 0 if alone is None else -1 if alone.failures else 1
        if both is not None:
            explained = fitting(tuple(left), subject, both, found.scope)
            left = [candidate for candidate in left if candidate not in explained]
    return left if right > 0 or found.wide else []


def _of_new_shapes(pairs_of_one_kind: Iterable[Pair]) -> Iterator[Pair]:
    """The first pair of each size: what goes by shapes was kept of that when the second one is asked."""
    seen: set[tuple[int, ...]] = set()
    for pair in pairs_of_one_kind:
        case = pair.later
        shape = case.batch, case.heads_q, case.heads_kv, case.seq_q, case.seq_k, case.dim_qk, case.dim_v
        if shape not in seen:
            seen.add(shape)
            yield pair


def _first_fitting(subject: Subject, each: Called) -> tuple[frozenset[str], list[Candidate]] | None:
    """What explains every output that fails; where nothing does, those of one kernel, the forward first."""
    for scope in map(frozenset, (OUTPUTS, *KERNELS)):
        for group in CANDIDATES:
            found = fitting(group, subject, each, scope)
            if found:
                return scope, found
    return None


def _diagnosis(subject: Subject, case: Case, found: _Found, end: End) -> Diagnosis:
    first, *others = found.candidates
    each = found.shown[0]
    failing = [name for name in OUTPUTS if any(name in one.later.failures for one in found.shown)]
    outputs = [name for name in failing if name in found.scope]
    alike = _WIDE if found.wide else _SAME
    words_of_it = said(first, outputs, alike)
    if not first.of_outputs:
        right = [name for name in each.later.right if name not in outputs]
        words_of_it += f"; it shows in {joined(outputs)}" if right else ""
    words = [sentence(words_of_it)]
    if others:
        words.append(
            f"Every pair tried is consistent with this as well: {' or '.join(said(o, outputs, alike) for o in others)}."
        )
    words.append(_where(subject, case, found, end))
    rest = "" if outputs == failing else "; other outputs are wrong in another way"
    place = place_of(each.later, each.later.failures, outputs[0])
    return Diagnosis(
        name_of(first, outputs),
        " ".join(words),
        tuple(name_of(other, outputs) for other in others),
        place,
        evidence=f"It explains {len(found.shown)} pairs of problems of fresh sizes, each clearly{rest}.",
    )


def _where(subject: Subject, case: Case, found: _Found, end: End) -> str:
    """With which other problem it shows, and where that must lie."""
    way, what = found.shown[0].way, found.shown[0].pair.what
    if way in (Way.ELSEWHERE, Way.MOVED):
        return f"It shows {way.value}: an address or a tensor of the first call is kept, and what lies there by then is read."
    if way in (Way.REPLAYED, Way.BACKWARD):
        return f"It shows {way.value}."
    if found.kind == "larger":
        return "It shows after a larger problem."
    if way is Way.APART:
        if found.kind == "values" and _shows(subject, case, found, Way.ELSEWHERE, end):
            return f"It shows with {what} in other memory, not at the same addresses: a tensor of the first call is kept, and read in later ones."
        return f"It shows with {what} in other memory, not at the same addresses."
    apart = _shows(subject, case, found, Way.APART, end)
    if apart is None:
        return f"It shows with {what} at the same addresses."
    if apart:
        return f"It shows with {what} at the same addresses and in other memory: what is kept goes by shapes or less."
    return f"It shows with {what} at the same addresses, not in other memory: what is kept goes by addresses, tensor objects or versions."


def _shows(subject: Subject, case: Case, found: _Found, way: Way, end: End) -> bool | None:
    """Whether a pair that lies in another way fails and is explained too; None where no pair tells."""
    candidates = (found.candidates[0],)
    number = fresh_number() if found.wide else found.number
    mates = pairs(subject, case, found.kind, number, wide=found.wide)
    alike = (p for p in mates if p.what == found.shown[0].pair.what)
    for pair in islice(alike, _ASKED):
        each = called(subject, pair, way) if not end.over else None
        if each is not None:
            return bool(each.later.failures) and bool(fitting(candidates, subject, each, found.scope))
    return None
