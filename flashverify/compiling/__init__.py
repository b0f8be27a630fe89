"""Subjects compiled ahead of time, without a GPU: resources of every kernel, and hazards in its intermediate code."""

from flashverify.compiling.records import Built, Compilation, Hazard
from flashverify.compiling.run import ARCHITECTURES, compile_launches, compile_subjects, find_jobs
from flashverify.compiling.sample import spread
from flashverify.compiling.text import as_json, as_text, exit_code

__all__ = [
    "ARCHITECTURES",
    "Built",
    "Compilation",
    "Hazard",
    "as_json",
    "as_text",
    "compile_launches",
    "compile_subjects",
    "exit_code",
    "find_jobs",
    "spread",
]
