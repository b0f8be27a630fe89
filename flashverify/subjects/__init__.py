"""Kernels under test: the interface, `@subject`, and loading by name."""

from flashverify.subjects.function import FunctionSubject, subject
from flashverify.subjects.interface import Contract, Forward, Gradients, Selective, Subject, Supports
from flashverify.subjects.registry import default_subjects, describe_subjects, has_gpu, load_subject

__all__ = [
    "Contract",
    "Forward",
    "FunctionSubject",
    "Gradients",
    "Selective",
    "Subject",
    "Supports",
    "default_subjects",
    "describe_subjects",
    "has_gpu",
    "load_subject",
    "subject",
]
