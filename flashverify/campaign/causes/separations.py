"""What experiments said of two findings: whether anything tells them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashverify.campaign.protocol import Separated
    from flashverify.judge.verdict import Key

__all__ = ["Separations"]


class Separations:
    """The experiments that were begun, and the answers of those that ended."""

    def __init__(self) -> None:
        self._begun: set[frozenset[Key]] = set()
        self._said: dict[frozenset[Key], Separated] = {}
        self._asked: set[frozenset[Key]] = set()

    def began(self, a: Key, b: Key, *, only_name: bool = False) -> None:
        """An experiment with two findings begins; `only_name` asks a diagnosis, and no more."""
        (self._asked if only_name else self._begun).add(frozenset({a, b}))

    def begun(self, a: Key, b: Key) -> bool:
        """Whether an experiment with two findings was begun."""
        return frozenset({a, b}) in self._begun

    def asked(self, a: Key, b: Key) -> bool:
        """Whether the diagnosis of the one was asked about the other one, or is."""
        return frozenset({a, b}) in self._asked | self._begun

    def add(self, event: Separated) -> None:
        """An experiment ended. A name alone tells nothing apart: what it does not account for is put to a whole one."""
        if not event.only_name:
            self._said[frozenset({event.cause, event.found})] = event

    def tried(self, a: Key, b: Key) -> bool:
        """Whether an experiment with two findings ended."""
        return frozenset({a, b}) in self._said

    def denied(self, a: Key, b: Key) -> bool:
        """Whether the diagnosis of the one was asked about the minimal case of the other one, and does not account for it."""
        said = self._said.get(frozenset({a, b}))
        return said is not None and said.accounts is False

    def seen_without(self, found: Key, lead: Key) -> bool:
        """Whether `found` failed on a case that lacks something that the case of `lead` has."""
        said = self._said.get(frozenset({found, lead}))
        return said is not None and bool(said.found_alone if said.found == found else said.cause_alone)
