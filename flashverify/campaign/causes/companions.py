"""Whether company says that a failure has the cause of a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.causes.accesses import access, accesses, overwritten, stores
from flashverify.campaign.causes.diagnoses import named, told_apart
from flashverify.campaign.causes.elsewhere import IN_THE_OTHER_PROBLEM, elsewhere
from flashverify.campaign.causes.independence import lacks_parts
from flashverify.campaign.causes.needs import needs, small, small_errors
from flashverify.campaign.causes.overflows import of_a_step
from flashverify.campaign.causes.symptoms import OF_BITS, SHAPE, TOLD_BY_VALUES, VALUES, symptom, unsteady
from flashverify.campaign.causes.together import HARDLY, Together
from flashverify.case.text import parse_case
from flashverify.judge.wording import plural
from flashverify.outputs import BACKWARD, FORWARD

if TYPE_CHECKING:
    from flashverify.judge.record import FindingRecord

__all__ = ["Companions"]

_RARELY = 0.1
"""Probability by chance at which company says that the cause is one, of what was not asked; of what a trial denied it is `HARDLY`."""
_SMALL_ERRORS = "it makes small errors of the same output"
_LATE = 2
"""Cases of a failure that may have been seen too late to be asked about."""
_OF_LOGITS = frozenset({"dq", "dk"})
_OF_PARTS = frozenset(BACKWARD) - _OF_LOGITS - {"delta", "dv"}
"""Gradients that are made of those of the logits, and exist with a modifier alone."""
_SEVERAL = 3
"""Cases of company from which on two findings that need the same are one while the search goes on."""


class Companions(Together):
    """What company says of findings."""

    def needed(self, found: FindingRecord, lead: FindingRecord, *, over: bool) -> str:
        """Why two explained findings are one, in words: nothing can be taken from one without taking away the other; empty where not.

        The minimal case of `found` shows `lead` too, and `beside` holds.
        """
        if self._symptoms_of(lead) & self._shows.get(found.key, frozenset()) and self.beside(found, lead, over=over):
            return "its minimal case needs the same, and shows both"
        failed = lead.confirmation.failed or not lead.confirmation.repeats
        if told_apart(found, lead) or not failed:
            return ""
        if small_errors(found.key, lead):
            return _SMALL_ERRORS
        return self._linked(found, lead, explained=True) or self._linked(lead, found, explained=True)

    def beside(self, found: FindingRecord, lead: FindingRecord, *, over: bool = False) -> bool:
        """Whether an explained finding, which needs something that most cases have not, was never missing where `found` was seen.

        Where one of them has a name, values are not told so.
        """
        if told_apart(found, lead) or lead.not_minimal or not lead.confirmation.failed:
            return False
        if not needs(parse_case(lead.case)):
            return False
        together, _ = self._met(found.key, lead, explained=True)
        return together >= (1 if over else _SEVERAL)

    def never_without(self, found: FindingRecord, lead: FindingRecord) -> str:
        """Whether one of two explained findings was never seen where the other one is not at work, in words.

        They were compared, or the one says that the bits of an output differ whose values the other one makes wrong.
        """
        asked = (lead.key, found.key) in self._compared or self._bits_of_values(found, lead)
        if not asked or (small(found.verdict) and small(lead.verdict)):
            return ""
        together, chance = self._met(found.key, lead, explained=True)
        often = together >= _SEVERAL and chance <= HARDLY
        return f"seen on {plural(together, 'case')}, never without it" if often else ""

    def _bits_of_values(self, found: FindingRecord, lead: FindingRecord) -> bool:
        outputs = {output for check, _, output in self._symptoms_of(lead) if check in VALUES}
        return found.key.check in OF_BITS and found.key.output in outputs and not told_apart(found, lead)

    def repeats(self, found: FindingRecord, lead: FindingRecord, *, over: bool) -> str:
        """Whether an explained failure of a check that compares two problems says what another finding says of one, in words.

        The problem that a case was compared with gets the values wrong that the other finding is about.
        """
        if found.verdict.other is None or named(found) or not lead.confirmation.failed:
            return ""
        buckets = (lead.key, *(each.key for each in lead.folded))
        if not named(lead) and elsewhere(found.key, found.verdict, buckets):
            return IN_THE_OTHER_PROBLEM
        alike = {msgspec.structs.replace(key, dtype=found.key.dtype) for key in buckets}
        never_alone = over and self._met(found.key, lead, explained=True)[0]
        asked = found.key.check not in TOLD_BY_VALUES or not named(lead)
        return IN_THE_OTHER_PROBLEM if never_alone and asked and elsewhere(found.key, found.verdict, alike) else ""

    def overwrites(self, found: FindingRecord, lead: FindingRecord) -> str:
        """Whether memory holds what the stores left there that a sanitizer complains about in `lead`, in words."""
        if not overwritten(found.key) or not (made := stores(lead)):
            return ""
        together, _ = self._company.met(found.key, made)
        return f"seen on {plural(together, 'case')}, never without a store outside its elements" if together else ""

    def lead(self, a: FindingRecord, b: FindingRecord) -> FindingRecord | None:
        """Of two explained findings, of which the minimal case of `b` shows `a`, the one that the other one goes to; None where they are two.

        They fail alike in two dtypes, or one of them never without the other: that one goes.
        """
        if a.key.subject != b.key.subject:
            return None
        if symptom(a.key) == symptom(b.key):
            return b
        for found, lead in ((a, b), (b, a)):
            together, chance = self._met(found.key, lead, explained=True)
            if together and chance <= _RARELY:
                return lead
        return None

    def why(
        self,
        found: FindingRecord,
        lead: FindingRecord,
        *,
        explained: bool,
        looked: bool,
        denied: bool,
        over: bool,
    ) -> str:
        """Why a bucket has the cause of a finding, in words; empty where company does not say so.

        Args:
            found: the bucket.
            lead: the finding.
            explained: whether that was minimised.
            looked: whether it was asked what takes one run at most.
            denied: whether it was asked, and does not account for the bucket.
            over: nothing more will be asked.
        """
        key = found.key
        if not (looked or over):
            return ""  # what is asked first says more
        if over and key.check == "sanitizer" and access(found.verdict.message) in accesses(lead):
            return "the same access of memory"
        if small_errors(key, lead):
            return _SMALL_ERRORS
        if words := of_a_step(key, lead):
            return words
        if self.apart(found, lead):
            return ""
        shown = self._symptoms_of(lead)
        if key.error == SHAPE and SHAPE not in {error for _, error, _ in shown}:
            return ""
        outputs = {output for check, _, output in shown if check in VALUES}
        if key.check in VALUES and key.output in FORWARD and outputs and not outputs & set(FORWARD):
            return ""  # the forward is over before a gradient goes wrong
        own_output = key.output in outputs
        follows = key.check in OF_BITS and key.output in BACKWARD
        follows = follows and any((key.check, key.error, name) in shown for name in FORWARD)
        told = named(lead) and key.check in TOLD_BY_VALUES
        if unsteady(shown, symptom(key)):
            return "the results differ from run to run"
        if lead.confirmation.repeats and not lead.confirmation.failed:
            return "that did not fail again in a fresh process either, or was not tried" if over else ""
        if self._alone_elsewhere(found, lead) or (explained and lacks_parts(found, lead)):
            return ""
        together, chance = self._met(key, lead, explained=explained)
        if told and own_output:  # a diagnosis had no say, or nobody had time to ask what was seen that late
            told = not looked and together > _LATE
        elif (told and key.output in _OF_PARTS and outputs & _OF_LOGITS) or (told and follows):
            told = together > _LATE
        most = HARDLY if denied else 1.0 if over and not told else _RARELY
        if not together or chance > most:
            return "" if told or (denied and key.check in VALUES) else self._linked(found, lead, explained=explained)
        return f"seen on {plural(together, 'case')}, never without it" + "; nothing tells it apart" * (chance > _RARELY)
