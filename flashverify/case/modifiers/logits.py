"""The modifications of the logits of a case, and the registry of all modifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from flashverify.case.modifiers.alibi import ALIBI
from flashverify.case.modifiers.bias import BIAS
from flashverify.case.modifiers.dropout import DROPOUT
from flashverify.case.modifiers.relative_bias import RELATIVE_BIAS
from flashverify.case.modifiers.sink import SINK
from flashverify.case.modifiers.softcap import SOFTCAP

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.modifiers.modifier import Modifier

__all__ = ["DROPOUT", "LOGIT_MODIFIERS", "MODIFIERS", "Logits", "modifiers_of"]

MODIFIERS: tuple[Modifier, ...] = (SOFTCAP, ALIBI, BIAS, SINK, RELATIVE_BIAS, DROPOUT)
"""Every modifier, in the order of the words of a case's text and of random draws. A modifier's own file says what it means."""

LOGIT_MODIFIERS = tuple(modifier for modifier in MODIFIERS if modifier.section == "logits")
"""Those that are fields of `Logits`, as a subject declares them in `Supports.logits`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logits:
    """Modifications of the logits between the scaled product and the softmax; all absent by default.

    Args:
        softcap: S becomes softcap * tanh(S / softcap), before anything is added.
        alibi: -slope * |i + shift - j| is added, with slope 2^(-8 (h + 1) / Hq) of query head h and the shift of the mask; `wild`
            slopes are of either sign and below 2^14 in magnitude, by seed.
        bias: an additive bias: `full` [B, Hq, Sq, Sk], `head` [1, Hq, Sq, Sk] or `shared` [1, 1, Sq, Sk].
        sink: one more column with V = 0 in every row that sees a key, a logit per query head.
        relative_bias: (buckets, max_distance, bidirectional) as in T5: a table per query head is added, by the bucket of the distance
            key - (row + shift), with the shift of the mask.
    """

    softcap: float | None = None
    alibi: bool | Literal["wild"] = False
    bias: Literal["full", "head", "shared"] | None = None
    sink: bool = False
    relative_bias: tuple[int, int, bool] | None = None

    def __post_init__(self) -> None:
        for modifier in LOGIT_MODIFIERS:
            modifier.check(getattr(self, modifier.name))

    def names(self) -> frozenset[str]:
        """Those that are present, as a subject declares them in `Supports.logits`."""
        return frozenset(modifier.name for modifier in LOGIT_MODIFIERS if getattr(self, modifier.name))


def modifiers_of(case: Case) -> tuple[Modifier, ...]:
    """The modifiers that the case has."""
    return tuple(modifier for modifier in MODIFIERS if modifier.of(case))
