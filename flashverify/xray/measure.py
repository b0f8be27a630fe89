"""Reads the masks that a kernel has in effect: the forward's, dV's, dQ's and dK's (docs/xray.md).

With Q = K = 0 all weights of a row of n keys are 1 / n, and with V one-hot over bins of keys O * n counts how often the keys of a bin
entered the row. dV sums P over the rows: with dO one-hot over bins of rows it counts the rows that entered each key. dQ and dK carry
dS = P (dP - delta): with V a code of signs and dO the same in every row, dS is n_i (V_j - O_i) times known factors, and K one-hot over
keys (Q over rows) reads it off. All factors are powers of two or known exactly.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.xray.codes import Scaling, alternating, signs, widest_bin, width_for
from flashverify.xray.declared import Declared
from flashverify.xray.gradients import read_gradients
from flashverify.xray.heads import HeadMap, read_maps
from flashverify.xray.probe import Probe
from flashverify.xray.reading import Reader

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.subjects.interface import Subject
    from flashverify.xray.view import Count, View

__all__ = ["Xray", "launches_for", "measure"]

_SMALL = 2**20
"""Pairs up to which one-hot codes are worth their launches on a CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Xray:
    """What was read of a subject on one case.

    Attributes:
        case: the problem.
        subject: its name.
        evidence: what it ran on.
        views: by output; with bins of more than one position a second one with random signs.
        count: keys per row by the LSE; None without one.
        maps: which head reads which.
        notes: what could not be read, and why.
        launches: passes of the kernels, a forward or a backward each.
        seconds: of all of it.
    """

    case: Case
    subject: str
    evidence: str
    views: tuple[View, ...]
    count: Count | None
    maps: tuple[HeadMap, ...]
    notes: tuple[str, ...]
    launches: int
    seconds: float

    def view(self, output: str) -> View | None:
        """The view of an output that counts without signs, or None."""
        return next((view for view in self.views if view.output == output and not (view.signed or view.zoomed)), None)


def launches_for(case: Case, device: str) -> int:
    """Launches that may be spent on one mask: enough for one-hot codes where these are cheap."""
    return 16 if device != "cpu" or case.seq_q * case.seq_k <= _SMALL else 4


def measure(subject: Subject, problem: Problem, *, launches: int | None = None, cheap: bool = False) -> Xray:
    """Reads every mask of `subject` on the case of `problem`, whose memory layout is kept.

    Args:
        subject: the kernel under test.
        problem: a materialized case; its values are not used.
        launches: that may be spent on one mask, more where the format needs narrower bins; by default see `launches_for`.
        cheap: random signs that differ between heads and sequences in place of one-hot codes and head maps: three
            launches of small problems, in which a single wrong pair is always seen, but not named.

    Raises:
        UsageError: nothing can be counted, see `refusal`.
        Exception: whatever the subject raises.
    """
    started = time.perf_counter()
    case = problem.case
    declared = Declared(case, problem.q.device)
    probe = Probe(subject, problem, declared)
    budget = launches or (1 if cheap else launches_for(case, problem.q.device.type))
    group = case.heads_q // case.heads_kv
    widths = (
        width_for(case.seq_q * group, min(case.dim_qk, case.dim_v), budget, widest_bin(case, "rows")),
        width_for(case.seq_k, case.dim_v, budget, widest_bin(case, "keys")),
    )
    gradient_keys = width_for(case.seq_k, case.dim_qk, budget, widest_bin(case, "rows"))
    reader = Reader(probe, Scaling(case.seq_k))
    views: list[View] = []
    if not cheap:
        views += reader.weights(*widths)
    if cheap or max(widths) > 1:
        drawn = [signs(case, "weights", probe.device, axis=axis, shared=not cheap) for axis in ("rows", "keys")]
        if case.storage.expand:
            drawn[1] = drawn[1][:, :1].expand(drawn[1].shape)
        views += reader.weights(*widths, by=(drawn[0], drawn[1]))
    if not cheap:
        views += _zoomed(reader, views)
    notes = []
    if probe.has_backward and probe.scale:
        codes = [signs(case, f"code/{n}", probe.device, axis="keys", shared=not cheap) for n in (0, 1)]
        if case.storage.expand:
            codes = [code[:, :1].expand(code.shape) for code in codes]
        views += read_gradients(
            reader, widths[0], gradient_keys, codes[:1] if cheap else [alternating(case, probe.device), *codes]
        )
    elif probe.has_backward:
        notes.append(f"dq and dk: nothing to read under scale={case.softmax_scale}, and the subject takes no other")
    else:
        notes.append("no gradients: the case or the subject has no backward")
    count = reader.count
    if count is None:
        notes.append("no LSE: counts are relative to the declared number of keys of a row")
    maps: tuple[HeadMap, ...] = ()
    if not cheap:
        maps, left_out = read_maps(probe, reader)
        notes += left_out
    return Xray(
        case=case,
        subject=subject.name,
        evidence=subject.evidence(),
        views=tuple(views),
        count=count,
        maps=maps,
        notes=tuple(notes),
        launches=probe.launches,
        seconds=time.perf_counter() - started,
    )


def _zoomed(reader: Reader, views: list[View]) -> list[View]:
    """O pair by pair in some of the bins of keys that differ: the first, the one with most wrong rows, the last."""
    view = next(view for view in views if view.output == "o")
    wrong = view.wrong.sum((0, 1, 2))
    if view.exact or not bool(wrong.any()):
        return []
    found = wrong.nonzero().squeeze(1)
    chosen = sorted({int(found[0]), int(wrong.argmax()), int(found[-1])})
    size = reader.case.seq_k
    return [reader.zoom(c * view.keys, min(view.keys, size - c * view.keys)) for c in chosen]
