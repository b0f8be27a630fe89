"""A held-out defect of a kernel that is none of the bundled ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["OwnDefect"]

_SETS = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class OwnDefect:
    """A change to a module of a set's `own`, with the fields of a `Mutant`; `file` is its path from the folder of the sets on."""

    name: str
    file: str
    before: str
    after: str
    outputs: tuple[str, ...]
    modelled_on: str
    needs: tuple[str, ...] = ()
    semantics: str = ""
    subject: str = ""
    gpu: bool = False
    control: bool = False

    def plant(self, folder: Path) -> str:
        """Writes the changed module into `folder`; returns what to pass to `--subject`."""
        text = (_SETS / self.file).read_text(encoding="utf-8")
        if text.count(self.before) != 1:
            raise SystemExit(f"{self.name}: the text to change stands {text.count(self.before)} times in {self.file}")
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.name}_subject.py"
        file.write_text(text.replace(self.before, self.after), encoding="utf-8")
        return f"{file}:SUBJECT"
