"""The lines that a run has written: what is done need not be done again."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flashverify.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Record"]

Answers = dict[str, bool | None]


@dataclass(slots=True)
class Record:
    """What is known so far, backed by a file of JSON lines whose first one holds the settings.

    Attributes:
        path: of the file.
        clean: (subject, inputs) -> case -> rule -> whether it rejects the unmutated kernel.
        mutants: mutant -> inputs -> its line.
    """

    path: Path
    clean: dict[tuple[str, str], dict[str, Answers]] = field(default_factory=lambda: defaultdict(dict))
    mutants: dict[str, dict[str, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))

    @classmethod
    def open(cls, path: Path, settings: dict[str, Any]) -> Record:
        """The record at `path`, begun where there is none.

        Raises:
            UsageError: it was made with other settings.
        """
        record = cls(path)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if not lines:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"settings": settings}) + "\n", encoding="utf-8")
            return record
        found = json.loads(lines[0]).get("settings")
        if found != settings:
            raise UsageError(f"json={str(path)!r} holds a run with {found}, not {settings}: name another file")
        for number, text in enumerate(lines[1:], 1):
            try:
                record._keep(json.loads(text))
            except json.JSONDecodeError:  # the line that an interrupted run was writing
                path.write_text("".join(f"{line}\n" for line in lines[:number]), encoding="utf-8")
                break
        return record

    def add(self, line: dict[str, Any]) -> None:
        """Keeps `line`, in the file first."""
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self._keep(line)

    def _keep(self, line: dict[str, Any]) -> None:
        if "clean" in line:
            self.clean[line["clean"], line["inputs"]].update(line["answers"])
        else:
            self.mutants[line["mutant"]][line["inputs"]] = line
