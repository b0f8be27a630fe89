"""Records as JSON that ends with a checksum of itself, so that a digit that flipped on the disk is seen."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, TypeVar

import msgspec

from flashverify.case.text import parse_case
from flashverify.judge.record import FindingRecord
from flashverify.judge.verdict import CaseResult, Verdict, from_hex

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DamagedRecordError", "decode", "pretty", "seal"]

_SEAL = re.compile(rb',\s*"crc32":\s*"([0-9a-f]{8})"\s*\}\s*\Z')
_SEAL_BYTES = 64
_Record = TypeVar("_Record")


class DamagedRecordError(ValueError):
    """Bytes on the disk are not what was written; the message says what is wrong with them."""


def seal(data: bytes) -> bytes:
    """A JSON object that is not empty, with the member `crc32`: the checksum of everything before it."""
    body = data.rstrip().removesuffix(b"}").rstrip()
    return b'%s,"crc32":"%08x"}' % (body, zlib.crc32(body))


def pretty(record: msgspec.Struct) -> bytes:
    """A record as sealed JSON for readers, with a line end."""
    body = msgspec.json.format(msgspec.json.encode(record), indent=2).removesuffix(b"}").rstrip()
    return b'%s,\n  "crc32": "%08x"\n}\n' % (body, zlib.crc32(body))


def decode(data: bytes, kind: type[_Record], *, sealed: bool = False, parsed: bool = False) -> _Record:
    """The record that `data` holds.

    Args:
        data: JSON; a seal is verified where there is one.
        kind: type of the record.
        sealed: whether there has to be one.
        parsed: whether the texts of cases in a record without a seal are parsed too.

    Raises:
        DamagedRecordError: it is not what was written.
    """
    found = _SEAL.search(data, max(0, len(data) - _SEAL_BYTES))
    if found is None and sealed:
        raise DamagedRecordError("its checksum is missing")
    if found is not None and int(found[1], 16) != zlib.crc32(data[: found.start()]):
        raise DamagedRecordError("it does not match its checksum")
    try:
        record = msgspec.json.decode(data, type=kind)
        if found is None:
            for text in _numbers(record):
                from_hex(text)
            for text in _cases(record) if parsed else ():
                parse_case(text)
    except RecursionError:
        raise DamagedRecordError("it is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:  # of the JSON, of UTF-8, of numbers and cases
        raise DamagedRecordError(str(error)) from error
    return record


def _numbers(record: object) -> Iterator[str]:
    """Every hex float of a record, as text."""
    for verdict in _verdicts(record):
        yield from filter(None, (verdict.ratio,))
    if isinstance(record, CaseResult):
        for stats in record.stats:
            yield from filter(None, (stats.worst, stats.median, stats.p99, stats.signed))
    if isinstance(record, FindingRecord):
        confirmed = record.confirmation
        yield from filter(None, (confirmed.expected, confirmed.got, confirmed.bound))


def _cases(record: object) -> Iterator[str]:
    """Every text of a case of a record."""
    for verdict in _verdicts(record):
        yield from filter(None, (verdict.case,))
    if isinstance(record, CaseResult):
        yield record.case
    if isinstance(record, FindingRecord):
        yield from (record.case, record.first, *(folded.case for folded in record.folded))


def _verdicts(record: object) -> tuple[Verdict, ...]:
    if isinstance(record, CaseResult):
        return record.verdicts
    return (record.verdict,) if isinstance(record, FindingRecord) else ()
