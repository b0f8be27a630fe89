"""What a card says, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flashverify.campaign.card.content import Card

__all__ = ["card_fields"]


def card_fields(card: Card) -> dict[str, Any]:
    """The sentences of a card that its record does not hold as they are."""
    return {
        "title": card.title,
        "failure": card.failure,
        "smallest": card.since,
        "sure": card.sure,
        "confirmed": card.confirmed,
        "also": card.members.summary if card.members is not None else "",
        "replay": card.replay,
    }
