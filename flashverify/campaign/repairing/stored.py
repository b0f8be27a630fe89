"""A stored finding whose repair is asked for."""

from __future__ import annotations

from pathlib import Path

from flashverify.campaign.store.files import read_capped
from flashverify.campaign.store.reader import FINDING, RUN, open_run
from flashverify.campaign.store.sealing import DamagedRecordError, decode
from flashverify.errors import UsageError
from flashverify.judge.record import FindingRecord

__all__ = ["finding_of", "first_of"]

_MOST_NAMED = 5


def finding_of(argument: str) -> str:
    """The folder of the one finding of a run folder; any other argument as it is.

    Raises:
        UsageError: the run has no finding, or several.
        StoreError: the run cannot be read.
    """
    folder = Path(argument)
    try:
        is_run = (folder / RUN).is_file()
    except (OSError, ValueError):
        return argument
    if not is_run:
        return argument
    found = [str(each.path) for each in open_run(folder).findings]
    if not found:
        raise UsageError(f"case={argument!r} is not accepted: the run has no finding")
    if len(found) > 1:
        more = f", and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        named = ", ".join(found[:_MOST_NAMED])
        raise UsageError(f"case={argument!r} is not accepted: the run has {len(found)} findings; one of {named}{more}")
    return found[0]


def first_of(argument: str) -> str:
    """The case that showed a stored finding first; empty where the argument is no finding folder, or where that is not known.

    Raises:
        UsageError: the record is damaged.
        StoreError: it cannot be read.
    """
    path = Path(argument)
    try:
        file = path / FINDING if path.is_dir() else path
        if not file.name.startswith(FINDING) or not file.is_file():
            return ""
    except (OSError, ValueError):
        return ""
    try:
        return decode(read_capped(file, within=path if file != path else None), FindingRecord).first
    except DamagedRecordError as error:
        raise UsageError(f"{file} is not the finding.json of a finding: {error}") from error
