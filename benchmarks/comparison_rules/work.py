"""What one process does: the clean kernel, or one mutant, on lists of cases. Every finished list is a line of JSON at once."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flashverify.mutants.mutant import Mutant
    from flashverify.subjects.interface import Subject

__all__ = ["OURS", "CleanTask", "MutantTask", "Task", "perform"]

OURS = "ours"
"""Name of the inputs that Hypothesis draws."""


@dataclass(frozen=True, slots=True)
class CleanTask:
    """The unmutated `subject` on cases of `inputs`, under every rule: what a rule rejects here is a false alarm."""

    subject: str
    inputs: str
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MutantTask:
    """A mutant on lists of cases by inputs.

    Each case comes with the rules that may reject it: those that accept the unmutated kernel there.
    """

    mutant: Mutant
    lists: dict[str, tuple[tuple[str, tuple[str, ...]], ...]]


Task = CleanTask | MutantTask


def perform(task: Task, path: str) -> None:
    """Does `task` and appends its lines to `path`; whatever the harness itself raises ends the process."""
    import torch

    from comparison_rules.values import register
    from flashverify.campaign.toolkit import bundled as toolkit

    torch.set_num_threads(1)
    register()
    with toolkit.open("cpu", plain=False, numerics="ieee"), Path(path).open("a") as lines:
        found = _clean(task) if isinstance(task, CleanTask) else _mutated(task)
        for line in found:
            lines.write(json.dumps(line) + "\n")
            lines.flush()


def _clean(task: CleanTask) -> Any:
    from comparison_rules.judging import CRASH, RULES, reject
    from flashverify.case.text import parse_case
    from flashverify.subjects import load_subject

    subject: Subject = load_subject(task.subject)
    answers = {}
    for text in task.cases:
        answer = reject(subject, parse_case(text), RULES)
        if CRASH in answer:
            raise RuntimeError(f"the unmutated {task.subject} fails on {text}")
        answers[text] = answer
    yield {"clean": task.subject, "inputs": task.inputs, "answers": answers}


def _mutated(task: MutantTask) -> Any:
    from flashverify.mutants import build_mutant
    from flashverify.subjects import load_subject

    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        subject: Subject = load_subject(build_mutant(task.mutant, Path(folder)))
        for inputs, cases in task.lists.items():
            yield {"mutant": task.mutant.name, "inputs": inputs, "cases": len(cases)} | _hunt(subject, cases)


def _hunt(subject: Subject, cases: tuple[tuple[str, tuple[str, ...]], ...]) -> dict[str, Any]:
    """Per rule the number of the first case, from 1, that kills the mutant."""
    from comparison_rules.judging import CRASH, RULES, reject
    from flashverify.case.text import parse_case

    first: dict[str, int] = {}
    crashes = 0
    for number, (text, usable) in enumerate(cases, 1):
        wanted = [rule for rule in RULES if rule in usable and rule not in first]
        if not wanted:
            continue
        answer = reject(subject, parse_case(text), wanted)
        crashes += CRASH in answer
        first |= {rule: number for rule in wanted if answer[rule]}
    return {"first": first, "crashes": crashes}
