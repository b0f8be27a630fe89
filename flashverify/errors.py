"""The exceptions of flashverify.

FlashverifyError
├── UsageError               the caller's argument, option or file is wrong (exit code 2)
│   ├── CaseTextError        a line is not the text form of a case
│   ├── SubjectLoadError     a subject cannot be found or imported
│   └── ConfigError          a configuration key or value is unknown
├── UnsupportedCaseError     a subject does not accept the case
├── NoVerdictError           nothing was judged: no case ran, or every worker died (exit code 3)
├── SelfCheckError           the harness found itself wrong: an oracle's error is too large, a bound is NaN
└── StoreError               a stored file is missing, damaged or cannot be written
"""

from __future__ import annotations

__all__ = [
    "CaseTextError",
    "ConfigError",
    "FlashverifyError",
    "NoVerdictError",
    "SelfCheckError",
    "StoreError",
    "SubjectLoadError",
    "UnsupportedCaseError",
    "UsageError",
]


class FlashverifyError(Exception):
    """Base of every error that flashverify raises on purpose."""


class UsageError(FlashverifyError, ValueError):
    """The caller passed something that is not accepted; the message names it, its value and what is accepted."""


class CaseTextError(UsageError):
    """A line is not the text form of a case."""


class SubjectLoadError(UsageError):
    """A subject is not registered, or its module cannot be imported."""


class ConfigError(UsageError):
    """A configuration key or value is unknown."""


class UnsupportedCaseError(FlashverifyError):
    """A subject does not declare support for a case; the message is the reason."""


class NoVerdictError(FlashverifyError):
    """Nothing was judged, which is never a pass."""


class SelfCheckError(FlashverifyError):
    """The harness proved itself wrong and refuses to give a verdict."""


class StoreError(FlashverifyError):
    """A stored file is missing, damaged or cannot be written."""
