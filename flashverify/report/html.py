"""The report as one HTML file: no script, nothing fetched, every foreign text escaped."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from flashverify.campaign.card.map_text import map_caption, map_place
from flashverify.campaign.card.repair_words import diff_lines, repair_effect, repair_note, repair_place
from flashverify.campaign.refusals.words import ADVICE, OUTCOMES, counts_text
from flashverify.case.case import REGIMES
from flashverify.checks.registry import failure_title
from flashverify.judge import wording
from flashverify.judge.record import THIN
from flashverify.judge.verdict import Status
from flashverify.report import figures
from flashverify.report.axes import bucket_text, dtype_rank, output_rank
from flashverify.report.content import RATIO_SENTENCE, Report
from flashverify.report.form_table import form_rows
from flashverify.report.map_figure import wrong_map_svg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import jinja2

    from flashverify.report.aggregate import Aggregate, Totals
    from flashverify.report.group import Group, GroupKey
    from flashverify.report.tested import Row

__all__ = ["render_html"]

_Place = TypeVar("_Place")
_MOST_ROWS = 25
_FIGURES_FOR = 12  # subjects; each costs a dozen figures


@dataclass(frozen=True, slots=True)
class _Panel:
    """A figure and its caption."""

    output: str
    svg: str


@dataclass(frozen=True, slots=True)
class _Matrix:
    """Worst ratios by `rows`, which are `title`s, and output."""

    title: str
    rows: list[str]
    ratios: Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class _Subject:
    """The section of one subject."""

    name: str
    totals: Totals
    form: list[tuple[str, str, str]]
    tested: list[Row]
    groups: list[tuple[GroupKey, Group]]
    dtypes: list[str]
    modes: list[str]
    outputs: list[str]
    worst: Mapping[tuple[str, str, str], float]
    matrices: list[_Matrix]
    curves: list[_Panel]
    maps: list[_Panel]


def render_html(report: Report) -> str:
    """The page; the same report gives the same bytes."""
    aggregate = report.aggregate
    labels = sorted({key.dtype for key in aggregate.groups}, key=dtype_rank)
    colours = {dtype: number for number, dtype in enumerate(labels)}
    subjects = [_subject(report, name, number, colours) for number, name in enumerate(aggregate.subjects)]
    page = _environment().get_template("report.html.j2")
    return (
        page.render(
            report=report,
            headline=report.headline,
            aggregate=aggregate,
            subjects=subjects,
            colours=colours,
            checks=_checks(aggregate),
            statuses=[s for s in Status if aggregate.outcomes[s]],
            most_rows=_MOST_ROWS,
            ratio_sentence=RATIO_SENTENCE,
            figures_for=_FIGURES_FOR,
            outside_counts=None if report.refusals is None else counts_text(report.refusals),
            outside_advice=ADVICE,
            outside_words=OUTCOMES,
        )
        + "\n"
    )


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Foreign text is made visible wherever it is printed; markup of our own passes.
        finalize=lambda value: wording.visible(value) if type(value) is str else value,
    )
    environment.filters |= {
        "ratio": wording.ratio_text,
        "tone": wording.tone,
        "number": wording.count_text,
        "duration": wording.duration_text,
        "time": wording.time_text,
        "share": wording.share_text,
        "plural": wording.plural,
        "evidence": wording.evidence_text,
        "path": quote,
        "trace": _trace,
        "bucket": bucket_text,
        "most": _most,
        "map_svg": wrong_map_svg,
        "map_caption": map_caption,
        "map_place": map_place,
        "diff": diff_lines,
        "repair_place": repair_place,
        "repair_effect": repair_effect,
        "repair_note": repair_note,
    }
    environment.globals["failure_title"] = failure_title
    environment.globals |= {"Status": Status, "THIN": THIN}
    return environment


def _trace(traceback: str) -> str:
    """A foreign text with its lines kept apart."""
    from markupsafe import Markup

    return Markup("\n").join(wording.visible(line) for line in traceback.splitlines())


def _most(counter: Counter[str]) -> list[tuple[str, int]]:
    """By count, then by text, so that ties do not depend on the order of arrival."""
    return sorted(counter.items(), key=lambda item: (-item[1], item[0]))


def _checks(aggregate: Aggregate) -> dict[str, Counter[Status]]:
    """Cases by check and status; what refuses a case is no check."""
    table: dict[str, Counter[Status]] = {}
    for totals in aggregate.subjects.values():
        for (check, status), count in totals.checks.items():
            table.setdefault(check, Counter())[status] += count
    return dict(sorted(table.items()))


def _subject(report: Report, name: str, number: int, colours: Mapping[str, int]) -> _Subject:
    groups = report.aggregate.of_subject(name)
    outputs = sorted({key.output for key, _ in groups}, key=output_rank)
    drawn = outputs if number < _FIGURES_FOR else []
    return _Subject(
        name=name,
        totals=report.aggregate.subjects[name],
        form=form_rows(report.record.form.get(name, "")),
        tested=report.aggregate.subjects[name].tested.table(report.aggregate.subjects[name].evidence),
        groups=groups,
        dtypes=sorted({key.dtype for key, _ in groups}, key=dtype_rank),
        modes=sorted({key.mode for key, _ in groups}, key=lambda mode: (mode != "end-to-end", mode)),
        outputs=outputs,
        worst={(key.output, key.dtype, key.mode): group.worst.ratio for key, group in groups if group.worst},
        matrices=[
            _matrix(
                "regime", _merge(groups, lambda key, group: {(r, key.output): x for r, x in group.regimes.items()})
            ),
            _matrix("mask", _merge(groups, lambda key, group: {(m, key.output): x for m, x in group.masks.items()})),
        ],
        curves=[
            panel for output in drawn if (panel := _curve(groups, output, f"c{number}-{_output_id(output)}", colours))
        ],
        maps=[panel for output in drawn if (panel := _map(groups, output, f"m{number}-{_output_id(output)}"))],
    )


def _matrix(title: str, ratios: Mapping[tuple[str, str], float]) -> _Matrix:
    """Rows from plain to wild: regimes in their own order, masks by their number of parts."""
    order = {regime: number for number, regime in enumerate(REGIMES)}
    rows = sorted({row for row, _ in ratios}, key=lambda r: (r != "none", order.get(r, len(order)), r.count("+"), r))
    return _Matrix(title, rows, ratios)


def _output_id(output: str) -> str:
    """An output's name as part of an id."""
    return "".join(c if c.isascii() and c.isalnum() else f"-{ord(c):x}-" for c in output)


def _merge(
    groups: Iterable[tuple[GroupKey, Group]], table: Callable[[GroupKey, Group], Mapping[_Place, float]]
) -> dict[_Place, float]:
    """The worst ratio at each place, over the groups."""
    merged: dict[_Place, float] = {}
    for key, group in groups:
        for place, ratio in table(key, group).items():
            if wording.worse(merged.get(place), ratio):
                merged[place] = ratio
    return dict(sorted(merged.items(), key=lambda item: repr(item[0])))


def _curve(groups: list[tuple[GroupKey, Group]], output: str, name: str, colours: Mapping[str, int]) -> _Panel | None:
    series: dict[str, Any] = {}
    for dtype in sorted({key.dtype for key, _ in groups if key.output == output}, key=dtype_rank):
        chosen = [(key, group) for key, group in groups if key.output == output and key.dtype == dtype]
        series[dtype] = _merge(chosen, lambda _, group: group.lengths)
    series = {dtype: line for dtype, line in series.items() if line}
    if not series:
        return None
    peaks = ", ".join(f"{dtype} at most {wording.ratio_text(_top(line.values()))}" for dtype, line in series.items())
    title = wording.visible(f"Worst ratio of {output} against sequence length: {peaks}.")
    return _Panel(output, figures.length_curve(name, title, series, colours))


def _map(groups: list[tuple[GroupKey, Group]], output: str, name: str) -> _Panel | None:
    cells = _merge([item for item in groups if item[0].output == output], lambda _, group: group.cells)
    if not cells:
        return None
    along = "key" if output in ("dk", "dv") else "query row"
    (bucket, column), ratio = max(cells.items(), key=lambda item: (wording.tone(item[1]) == "over", item[1]))
    title = f"Worst ratio of {output} by sequence length and {along}: the largest, {wording.ratio_text(ratio)}, lies in sixteenth {column + 1} at lengths {bucket_text(bucket)}."
    return _Panel(output, figures.heat_map(name, wording.visible(title), cells, along))


def _top(ratios: Iterable[float]) -> float | None:
    top: float | None = None
    for ratio in ratios:
        if wording.worse(top, ratio):
            top = ratio
    return top
