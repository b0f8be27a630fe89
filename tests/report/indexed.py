"""A run with an index, made in this process."""

from flashverify.campaign.store import results
from flashverify.campaign.store.results import pieces
from flashverify.campaign.store.segments import write_segment
from flashverify.campaign.store.writer import RunStore, open_run
from flashverify.report.segment_process import segment_of
from tests.report.synthetic import header

SIZE = 25_000


def in_here(folder, number, piece):
    """What a process answers that reads a piece."""
    segment = segment_of(open_run(folder), piece)
    if segment is not None:
        write_segment(folder, number, segment)
    return segment


def sealed_run(path, stored, monkeypatch, **changes):
    """The folder of a run over `stored` with some pieces of `SIZE` bytes; it has no index yet."""
    monkeypatch.setattr(results, "PIECE_BYTES", SIZE)
    store = RunStore(path)
    store.write_header(header(sealed=True, **changes))
    for result in stored:
        store.append(result)
    store.close()
    return path


def index(run):
    """Make the index of a run."""
    for number, piece in enumerate(pieces(run)):
        in_here(run, number, piece)
