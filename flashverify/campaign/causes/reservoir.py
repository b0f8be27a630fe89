"""A few cases of every bucket that differ from each other: a second cause may hide behind the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.causes.symptoms import consequences
from flashverify.case.text import parse_case

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.case.case import Case
    from flashverify.judge.verdict import Key

__all__ = ["TILE", "Reservoir"]

_KEPT = 6
"""Cases of one bucket, the leading one included."""
TILE = 64
"""Rows or keys from which on a kernel makes several tiles of them."""


class Reservoir:
    """Per bucket the case that leads it, and others with other parts."""

    def __init__(self) -> None:
        self._leading: dict[Key, Sighting] = {}
        self._others: dict[Key, dict[object, Sighting]] = {}

    def lead(self, sighting: Sighting) -> None:
        """The bucket is known by this case from now on."""
        self._leading[sighting.key] = sighting

    def add(self, sighting: Sighting, case: Case) -> None:
        """One more case of a bucket: it leads where none does; else it is kept where it has parts that no kept one has, and no edits."""
        if sighting.key not in self._leading:
            self.lead(sighting)
            return
        kept = self._others.setdefault(sighting.key, {})
        if not kept:
            leading = self._leading[sighting.key]
            kept[_features(leading, parse_case(leading.case))] = leading
        features = _features(sighting, case)
        if len(kept) < _KEPT and features not in kept and not case.values.edits:
            kept[features] = sighting

    def leading(self, key: Key) -> Sighting | None:
        """The case that a bucket is known by."""
        return self._leading.get(key)

    def unusual(self, sighting: Sighting) -> bool:
        """Whether other things fail on a case than on the one that leads its bucket."""
        return _failing(sighting) != _failing(self._leading[sighting.key])

    def beside(self, folded: Container[Key]) -> Iterator[Sighting]:
        """The cases of all buckets but those that findings are known by; of the buckets `folded` every case."""
        for key, leading in self._leading.items():
            if key in folded:
                yield leading
            yield from list(self._others.get(key, {}).values())[1:]


def _features(sighting: Sighting, case: Case) -> object:
    """What decides which code runs on a case, and what else failed there."""
    storage, mask = case.storage, case.mask
    sizes = (case.seq_q > case.seq_k, max(case.seq_q, case.seq_k) > TILE, case.batch > 1, case.heads_q > case.heads_kv)
    memory = (storage.layout, storage.page_size is not None, storage.offset > 0, bool(case.launch))
    return (mask.parts(), case.logits.names(), case.dropout > 0, sizes, memory, _failing(sighting))


def _failing(sighting: Sighting) -> frozenset[tuple[str, str, bool]]:
    """What fails, and which of it only follows from a wrong O or LSE."""
    following = consequences(sighting.failures, sighting.given)
    return frozenset((verdict.check, verdict.output, verdict.output in following) for verdict in sighting.failures)
