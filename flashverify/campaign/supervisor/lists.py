"""The lists of cases that a campaign judges before it draws any: kept ones, the packaged corpus, the matrix, given ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.campaign.protocol import CaseList, Chunk
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flashverify.campaign.supervisor.schedule import CampaignConfig

__all__ = ["Lists"]

_CHUNK = 8
KEPT, CORPUS, MATRIX, GIVEN = "kept", "corpus", "matrix", "given"


@dataclass(frozen=True, slots=True)
class _Name:
    """A list of one subject; its text is the `origin` of its results."""

    kind: str
    spec: str

    def __str__(self) -> str:
        return f"{self.kind} {self.spec}"


class Lists:
    """Which cases are listed, in the order in which they are judged, and which of them were.

    Args:
        config: of the campaign.
        noted: the lists of a run that is resumed, by the text of their names.
        judged: texts of the cases of each that were judged.
        over: whether the run that is resumed judged them all, though it did not note them.

    Raises:
        UsageError: the run that is resumed was over other cases.
    """

    def __init__(
        self,
        config: CampaignConfig,
        noted: Mapping[str, tuple[str, ...]],
        judged: Mapping[str, set[str]],
        *,
        over: bool = False,
    ) -> None:
        self._config = config
        self._names = [] if over else [_Name(kind, spec) for kind in _kinds(config) for spec in config.subjects]
        self._known = {name: noted[str(name)] for name in self._names if str(name) in noted}
        self._judged = {name: set(judged.get(str(name), ())) for name in self._names}
        for name in self._names:
            at_hand = {KEPT: config.kept, GIVEN: config.cases}.get(name.kind)
            if at_hand is None:
                continue
            cases = tuple(dict.fromkeys(at_hand))
            if name.kind == GIVEN and self._known.get(name, cases) != cases:
                raise UsageError(
                    f"out={str(config.out)!r} is not accepted: it holds a run over other cases; name a new folder"
                )
            self._known.setdefault(name, cases)
        self._handed: set[_Name] = set()

    def unlisted(self) -> list[CaseList]:
        """Tasks that name the cases of the lists that are not known."""
        return [CaseList(n.spec, corpus=n.kind == CORPUS) for n in self._names if n not in self._known]

    @property
    def known(self) -> bool:
        """Whether every list is."""
        return len(self._known) == len(self._names)

    def listed(self, spec: str, cases: tuple[str, ...], *, corpus: bool) -> None:
        """A list is known."""
        self._known[_Name(CORPUS if corpus else MATRIX, spec)] = cases

    def noted(self) -> dict[str, tuple[str, ...]]:
        """What is to be noted, by the text of the names."""
        return {str(name): cases for name, cases in self._known.items()}

    def planned(self) -> dict[_Name, tuple[str, ...]]:
        """The cases to judge of each known list, by all shards together: with a limit the first ones, of a search with kept and corpus cases half of it at most."""
        room = self._config.max_cases
        half = None if room is None or self._config.kind == "run" else room // 2
        found = {}
        for name in self._names:
            if name not in self._known:
                continue
            cases = self._known[name]
            if room is not None:
                cases = cases[: room if half is None or name.kind == MATRIX else min(room, half)]
                room -= len(cases)
                half = half - len(cases) if half is not None and name.kind != MATRIX else half
            found[name] = cases
        return found

    def _own(self) -> dict[_Name, tuple[str, ...]]:
        """Those of them that are of this shard."""
        return {name: self._config.shard.share(cases) for name, cases in self.planned().items()}

    def chunks(self) -> Iterator[Chunk]:
        """What can be handed out and was not yet: with a limit nothing before every list is known."""
        if self._config.max_cases is not None and not self.known:
            return
        plan = "fuzz" if self._config.kind == "fuzz" else "run"
        for name, cases in self._own().items():
            if name in self._handed:
                continue
            self._handed.add(name)
            left = tuple(case for case in cases if case not in self._judged[name])
            # Small chunks towards the end of a short list, so that no worker is left waiting for another.
            size = max(1, min(_CHUNK, len(left) // (4 * self._config.workers)))
            kind = "run" if name.kind == MATRIX else plan
            for i in range(0, len(left), size):
                yield Chunk(name.spec, left[i : i + size], kind, str(name))

    def stored(self, origin: str, case: str) -> None:
        """The result of a listed case is in the store."""
        kind, _, spec = origin.partition(" ")
        self._judged.setdefault(_Name(kind, spec), set()).add(case)

    @property
    def size(self) -> int:
        """Cases to judge of all lists, by all shards together."""
        return sum(map(len, self.planned().values()))

    @property
    def own(self) -> int:
        """Those among them that are of this shard."""
        return sum(map(len, self._own().values()))

    def order(self) -> dict[tuple[str, str], int]:
        """The place of each case, by the origin and the text of its result."""
        cases = ((str(name), case) for name, found in self.planned().items() for case in found)
        return {each: place for place, each in enumerate(cases)}

    def part(self) -> str:
        """What was judged, in words; empty where that is all."""
        planned, of, done = self._own(), Counter[str](), Counter[str]()
        for name in self._names:
            of[name.kind] += len(planned.get(name, ()))
            done[name.kind] += len(self._judged[name] & set(planned.get(name, ())))
        unknown = {name.kind for name in self._names if name not in self._known}
        return ", ".join(
            f"{done[kind]:,} of {of[kind]:,} {kind} cases judged" if kind not in unknown else f"no {kind} case judged"
            for kind in of
            if done[kind] < of[kind] or kind in unknown
        )


def _kinds(config: CampaignConfig) -> tuple[str, ...]:
    """The kinds of lists, in their order."""
    matrix = config.matrix or (config.kind == "run" and not config.cases)
    wanted = (
        (KEPT, config.kept),
        (CORPUS, config.corpus and config.kind == "fuzz"),
        (GIVEN, config.cases),
        (MATRIX, matrix),
    )
    return tuple(kind for kind, on in wanted if on and (kind != GIVEN or config.kind == "run"))
