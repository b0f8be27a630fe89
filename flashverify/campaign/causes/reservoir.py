"""A few cases of every bucket that differ from each other: a second cause may hide behind the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.text import parse_case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.case.case import Case
    from flashverify.judge.verdict import Key

__all__ = ["Reservoir"]

_KEPT = 4
"""Cases of one bucket, the leading one included."""


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
        kept = self._others.setdefault(
            sighting.key, {_features(parse_case(self._leading[sighting.key].case)): sighting}
        )
        features = _features(case)
        if len(kept) < _KEPT and features not in kept and not case.values.edits:
            kept[features] = sighting

    def leading(self, key: Key) -> Sighting | None:
        """The case that a bucket is known by."""
        return self._leading.get(key)

    def others(self) -> Iterator[Sighting]:
        """The other cases of all buckets."""
        for kept in self._others.values():
            yield from list(kept.values())[1:]


def _features(case: Case) -> object:
    """The parts of a case that decide which code runs."""
    group, packed, paged = (
        case.heads_q > case.heads_kv,
        case.mask.packed is not None,
        case.storage.page_size is not None,
    )
    return (case.mask.parts(), case.logits.names(), case.dropout > 0, packed, paged, group, bool(case.launch))
