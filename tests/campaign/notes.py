"""A journal without a disk."""

from flashverify.campaign.store.notes import Claims
from flashverify.campaign.supervisor.journal import Journal
from flashverify.campaign.supervisor.readiness import Readiness
from flashverify.campaign.supervisor.schedule import CampaignConfig, Schedule


class Notes:
    """Where a journal is noted."""

    def __init__(self, claims=None, lists=None):
        self.noted, self.known = claims or Claims(open=()), dict(lists or {})

    def claims(self):
        return self.noted

    def claim(self, claims):
        self.noted = claims

    def lists(self):
        return self.known

    def write_lists(self, lists):
        self.known = dict(lists)


def schedule(tmp_path, notes=None, stored=(), *, sealed=True, ready=False, **changes):
    """A schedule of a search in two subjects, over `stored`, results with their specs; with `ready` what is compiled, too."""
    given = {"kind": "fuzz", "subjects": ("a", "b"), "out": tmp_path, "device": "cpu", "workers": 1}
    config = CampaignConfig(**(given | changes))
    journal = Journal(config, notes or Notes(), stored, sealed=sealed)
    if not ready:
        return Schedule(config, journal)
    compiled = Readiness(config.subjects, config.seed, journal.compiled)
    return Schedule(config, journal, compiled), compiled


def following(found):
    """The next task."""
    return found.next(False, lambda _: ())
