"""What fails, and which of it only follows from what else fails on the same case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.judge.verdict import Status, from_hex
from flashverify.outputs import BACKWARD, FORWARD

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from flashverify.judge.verdict import CaseResult, Key, Verdict

__all__ = [
    "FAR",
    "OF_BITS",
    "OF_ROWS",
    "REPEAT",
    "SHAPE",
    "TOLD_BY_VALUES",
    "VALUES",
    "Symptom",
    "Symptoms",
    "consequences",
    "symptom",
    "unsteady",
]

VALUES = ("accuracy", "nonfinite")
"""Checks that compare an output of the case itself with its exact value."""
TOLD_BY_VALUES = (*VALUES, "padding")
"""Checks whose failures a diagnosis accounts for by itself: it says what the values are."""
FAR = 64.0
"""Errors of O or the LSE, in bounds, from which on a gradient that used them could not be right end to end."""

SHAPE = "shape"
"""An error that wrong values never make."""
REPEAT = "determinism", "repeat"
OF_BITS = ("determinism", "padding", "reuse")
"""Checks that compare the bits of two runs: they say nothing where the same run gives other bits each time."""
OF_ROWS = frozenset({*FORWARD, "delta", "dq"})
"""Outputs with elements for each row."""

Symptom = tuple[str, str, str]


def symptom(of: Key | Verdict) -> Symptom:
    """Check, error and output: a bucket without its dtype."""
    return (of.check, of.error, of.output)


def unsteady(cause: Collection[Symptom], of: Symptom) -> bool:
    """Whether a check that compares bits says nothing of an output, since the same run of the same case gives other bits each time."""
    outputs = {output for check, error, output in cause if (check, error) == REPEAT}
    return of[0] in OF_BITS and bool(outputs & {of[2], *FORWARD})


def consequences(failures: Iterable[Verdict], given: Collection[str]) -> dict[str, str]:
    """The gradients that are wrong only because O or the LSE is, each with the reason in words.

    A gradient that is right given the kernel's own O and LSE is wrong because they are. One that is right end to end, though O or the
    LSE is far off, does not use what was returned, so that the comparison given them says nothing.

    Args:
        failures: of one case.
        given: outputs that were judged given the kernel's own O and LSE too.
    """
    found = [v for v in failures if v.check in VALUES]
    forward = [v for v in found if v.output in FORWARD and v.mode != "strict"]
    if not forward:
        return {}
    name = "O" if any(v.output == "o" for v in forward) else "LSE"
    far = any(v.ratio and from_hex(v.ratio) >= FAR for v in forward)
    words: dict[str, str] = {}
    for output in BACKWARD:
        modes = {v.mode for v in found if v.output == output}
        if modes == {"end-to-end"} and output in given:
            words[output] = f"follows from the wrong {name}"
        elif modes == {"conditional"} and far:
            words[output] = f"right end to end, wrong only given the wrong {name}"
    return words


class Symptoms:
    """What failed on a case that was judged, and what was judged.

    Args:
        results: of the case, by one check each.

    Attributes:
        seen: every symptom.
        own: those that do not follow from a wrong O or LSE.
        outputs: that were compared with exact values.
    """

    def __init__(self, *results: CaseResult) -> None:
        verdicts = [verdict for result in results for verdict in result.verdicts]
        failures = [verdict for result in results for verdict in result.failures]
        stats = [each for result in results for each in result.stats]
        following = consequences(failures, {each.output for each in stats if each.mode == "conditional"})
        self.seen = frozenset(symptom(v) for v in failures)
        self.own = frozenset(s for s in self.seen if s[0] not in VALUES or s[2] not in following)
        self.outputs = frozenset(each.output for each in stats)
        self._judged = any(v.status in (Status.PASS, Status.FAIL) for v in verdicts)
        self._spoilt = any(v.status in (Status.ERROR, Status.UNSUPPORTED) for v in verdicts)

    @property
    def judged(self) -> bool:
        """Whether the case says anything: it was accepted, and the harness could judge it."""
        return self._judged and not self._spoilt

    def asked(self, of: Symptom) -> bool:
        """Whether the case could have shown a symptom."""
        return self.judged and (of[0] not in VALUES or of[2] in self.outputs)
