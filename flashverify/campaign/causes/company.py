"""Which failures keep company: what is never seen without a cause is most likely its work, unless that cause is seen nearly everywhere."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from math import comb
from typing import TYPE_CHECKING

from flashverify.campaign.causes.error_sizes import ErrorSizes
from flashverify.campaign.causes.reservoir import TILE
from flashverify.campaign.causes.symptoms import OF_ROWS, VALUES, Symptom, symptom
from flashverify.case.masks.mask import PARTS
from flashverify.case.modifiers.logits import MODIFIERS
from flashverify.case.text import parse_case
from flashverify.diagnosis.features import ABSENT, OF_OPTIONS, case_features
from flashverify.judge.verdict import Status

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from flashverify.case.case import Case
    from flashverify.judge.verdict import CaseResult, Key, Verdict

__all__ = ["Company"]

_ENOUGH = 10
"""Cases of company that count; more of them say nothing more about a cause that is seen nearly everywhere."""
_MOST = 5_000
"""Different entries that are kept of a subject; what comes later is not counted."""

_BLANK = "no row sees a key"

Elsewhere = frozenset[tuple[Symptom, frozenset[str]]]
Entry = tuple[frozenset[str], frozenset[tuple[Symptom, str]], frozenset[str], Elsewhere]
"""Parts of the case, failures with the dtype, what was asked, which is checks and outputs that were compared with exact values, and what
fails on the problems that checks compared the case with, each with the parts of that problem."""


class Company:
    """What failed together on the judged cases.

    Attributes:
        errors: how large they were.
    """

    def __init__(self) -> None:
        self._entries: defaultdict[str, Counter[Entry]] = defaultdict(Counter)
        self._failed: defaultdict[tuple[str, Symptom, str], list[Entry]] = defaultdict(list)
        self._first: dict[tuple[str, Entry], str] = {}
        self.errors = ErrorSizes()

    def add(self, result: CaseResult, weight: int = 1) -> None:
        """Count a case that was judged, and each that a check made of it and found wrong by itself.

        It counts `weight` times. Nothing is counted where a case would not have shown a failure. Of a case that a check made only the values were looked at.
        """
        if not (result.failures or result.coverage):
            return
        if result.failures:
            self.errors.add(result, parse_case(result.case).dtype)
        asked = {v.check for v in result.verdicts if v.status in (Status.PASS, Status.FAIL)} - set(VALUES)
        outputs = {f"values of {each.output}" for each in result.stats} | _blank(result)
        failing: dict[str, list[Verdict]] = {result.case: []}
        for verdict in result.failures:
            failing.setdefault(result.case_of(verdict), []).append(verdict)
        for text, failures in failing.items():
            own = asked if text == result.case else {verdict.check for verdict in failures} - set(VALUES)
            self._count(result.subject, text, failures, frozenset(own | outputs), weight)

    def _count(self, subject: str, text: str, failing: list[Verdict], asked: frozenset[str], weight: int) -> None:
        case = parse_case(text)
        failures = frozenset((symptom(each), case.dtype) for each in failing)
        entry = (_parts(case), failures, asked, _elsewhere(failing))
        kept = self._entries[subject]
        if entry not in kept:
            if len(kept) >= _MOST:
                return
            self._first[subject, entry] = text
            for failure, dtype in failures:
                self._failed[subject, failure, dtype].append(entry)
        kept[entry] += weight

    def cases(self, bucket: Key) -> Iterator[str]:
        """Cases of a bucket, each with other parts or failures."""
        of_bucket = self._failed.get((bucket.subject, symptom(bucket), bucket.dtype), ())
        return (self._first[bucket.subject, entry] for entry in of_bucket)

    @staticmethod
    def parts(case: Case) -> frozenset[str]:
        """What a case has, and in what order of size it is; not what it lacks."""
        return _parts(case)

    def alone(self, bucket: Key, cause: Collection[Symptom]) -> list[str]:
        """Cases, each with other parts or failures, on which a bucket was seen without a cause that could have been seen there."""
        of_bucket = self._failed.get((bucket.subject, symptom(bucket), bucket.dtype), ())
        return [
            self._first[bucket.subject, entry]
            for entry in of_bucket
            if _could(entry, cause) and not any(seen in cause for seen, _ in (*entry[1], *entry[3]))
        ]

    def met(
        self,
        bucket: Key,
        cause: Collection[Symptom],
        minimal: Case | None = None,
        at_work: Collection[str] = (),
    ) -> tuple[int, float]:
        """How often a bucket was seen with a cause, and how probable that is for two that have nothing to do with each other.

        The cause is expected on as many of the bucket's cases as it is seen on among all cases that have the parts that the bucket's
        cases share. A cause that is seen on all of those says nothing.

        Args:
            bucket: failures with one symptom in one dtype.
            cause: every symptom of the cause.
            minimal: its minimal case, where it has one: what fails without the mask and the modifiers of that is not its work.
            at_work: those of `alone` on which the cause shows with other values.

        Returns:
            (0, 1) where the bucket was seen on a case that could have shown the cause and did not.
        """
        entries, shows = self._entries[bucket.subject], partial(_shows, cause=cause, needed=_needed(minimal))
        of_bucket, alike = self._alike(bucket, cause, _needed(minimal))
        working = {entry for entry in of_bucket if self._first[bucket.subject, entry] in at_work}
        met = {entry for entry in of_bucket if shows(entry)} | working
        if any(entry not in met and _could(entry, cause) for entry in of_bucket):
            return 0, 1.0
        together = sum(entries[entry] for entry in met)
        if not together:
            return 0, 1.0
        usual = sum(count for e, count in alike.items() if shows(e) or e in working)
        rate = usual / sum(alike.values()) if alike else 1.0
        return together, float(rate ** min(together, _ENOUGH))

    def linked(self, bucket: Key, cause: Collection[Symptom], minimal: Case | None = None) -> tuple[int, int, float]:
        """On how many of a bucket's cases a cause was seen too, and how probable so many are for two that have nothing to do with each other.

        The cases are those that have the parts that the bucket's cases share; the probability is that of Fisher's exact test.

        Args:
            bucket: failures with one symptom in one dtype.
            cause: every symptom of the cause.
            minimal: its minimal case, where it has one.

        Returns:
            The number of these cases, that of all the bucket's cases that could have shown the cause, and the probability.
        """
        needed = _needed(minimal)
        of_bucket, alike = self._alike(bucket, cause, needed)
        mine = {entry: count for entry, count in alike.items() if entry in of_bucket}
        together, usual = (
            sum(count for entry, count in counts.items() if _shows(entry, cause, needed)) for counts in (mine, alike)
        )
        several, every = sum(mine.values()), sum(alike.values())
        ways = range(together, min(several, usual) + 1)
        chance = sum(comb(usual, n) * comb(every - usual, several - n) for n in ways) / comb(every, several)
        return together, several, chance

    def _alike(
        self, bucket: Key, cause: Collection[Symptom], needed: frozenset[str]
    ) -> tuple[set[Entry], dict[Entry, int]]:
        """The entries of a bucket, and of all that have the parts that these share and could show a cause how often each was seen."""
        of_bucket = set(self._failed.get((bucket.subject, symptom(bucket), bucket.dtype), ()))
        shared = frozenset.intersection(*(entry[0] for entry in of_bucket)) if of_bucket else frozenset()
        entries = self._entries[bucket.subject].items()
        alike = {e: n for e, n in entries if shared <= e[0] and (_shows(e, cause, needed) or _could(e, cause))}
        return of_bucket, alike


def _needed(minimal: Case | None) -> frozenset[str]:
    return frozenset() if minimal is None else _present(case_features(minimal))


def _elsewhere(failing: list[Verdict]) -> Elsewhere:
    """What fails on the other problems of checks that compare two, each with the parts of that problem."""
    others = dict.fromkeys(verdict.other for verdict in failing if verdict.other is not None)
    parts = {other: _present(case_features(parse_case(other.case))) for other in others}
    return frozenset((each, parts[other]) for other in others for each in other.failures)


def _shows(entry: Entry, cause: Collection[Symptom], needed: frozenset[str]) -> bool:
    """Whether a cause was seen, on a problem that has the parts that it needs."""
    own = needed <= entry[0] and any(seen in cause for seen, _ in entry[1])
    return own or any(seen in cause and needed <= parts for seen, parts in entry[3])


def _could(entry: Entry, cause: Collection[Symptom]) -> bool:
    """Whether any symptom of a cause could have been seen.

    It was asked about, a number that is not finite did not hide it, and values of rows were not all those of rows that see no key, which
    fail in a way of their own.
    """
    hidden = {output for (check, _, output), _ in entry[1] if check == "nonfinite"}
    empty = OF_ROWS if _BLANK in entry[2] else frozenset()
    asked = (
        (f"values of {output}", output in hidden or (error == "bound" and output in empty))
        if check in VALUES
        else (check, False)
        for check, error, output in cause
    )
    return any(what in entry[2] and not lost for what, lost in asked)


def _blank(result: CaseResult) -> set[str]:
    """The mark of a case on which O is 0 everywhere, as it is where no row sees a key."""
    return {_BLANK} if any(each.output == "o" and each.telling == 0 < each.elements for each in result.stats) else set()


_ALIKE = {"tree": "bitmap", "query_lengths": "key_lengths"}
"""Parts that kernels get in the same way, as a bit for each pair or as a length for each sequence: a defect of one shows with the other."""


def _present(found: Mapping[str, object]) -> frozenset[str]:
    """Parts of the mask, modifiers, pages and a backward, as far as a case with these features has them."""
    names = (*(part.name for part in PARTS), *(modifier.name for modifier in MODIFIERS), "paged", "backward")
    present = [name for name in names if found.get(name, ABSENT) != ABSENT]
    return frozenset(f"has {_ALIKE.get(name, name)}" for name in present)


def _parts(case: Case) -> frozenset[str]:
    """The parts that a case has, and in what order of size it is; not those that it lacks."""
    sizes = {
        "seq_q",
        "seq_k",
        "window_left",
        "window_right",
        "sequences",
        "heads_q",
        "heads_kv",
        "group",
        "offset",
        "gap",
        *OF_OPTIONS,
    }
    features = case_features(case)
    found = {f"{name}={value}" for name, value in features.items() if value != ABSENT and name not in sizes}
    order = {
        "several tiles of rows": case.seq_q > TILE,
        "several tiles of keys": case.seq_k > TILE,
        "more rows than keys": case.seq_q > case.seq_k,
        "several sequences": case.batch > 1,
        "groups of heads": case.heads_q > case.heads_kv,
        "an offset": case.storage.offset > 0,
        "a gap": case.storage.gap > 0,
        "no rows": 0 in (case.rows_inside or (case.seq_q,)),
        "no keys": 0 in (case.keys_inside or (case.seq_k,)),
    }
    return _present(features) | frozenset(
        found
        | {f"regime={regime}" for regime in case.values.regimes}
        | {name for name, holds in order.items() if holds}
    )
