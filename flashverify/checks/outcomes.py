"""The classes of failure that no check reports: what happens to a whole case, and the harness's own errors."""

from __future__ import annotations

from flashverify.checks.spec import ErrorClass

__all__ = ["OUTCOMES"]

OUTCOMES: dict[str, tuple[ErrorClass, ...]] = {
    "exception": (ErrorClass("exception", "{output} is raised", "the subject raised an exception"),),
    "crash": (
        ErrorClass("memory", "the process uses too much memory", "the process was killed for the memory that it used"),
        ErrorClass("device-lost", "the GPU is lost", "the case left the GPU unusable for the process"),
        ErrorClass("SIG*", "the process crashes with {error}", "a signal ended the process"),
        ErrorClass("signal-*", "the process crashes with {error}", "a signal without a name ended the process"),
        ErrorClass("exit-*", "the process ends with {error}", "the process ended by itself"),
    ),
    "hang": (
        ErrorClass(
            "hang",
            "the kernel does not return",
            "the case did not end within its time limit, without the time in which its process waited for a processor",
        ),
    ),
    "harness": (
        ErrorClass("self-check", "the harness refuses a verdict", "an oracle, a bound or a check contradicts itself"),
        ErrorClass("exception", "the harness fails", "an exception inside the harness; no verdict about the subject"),
    ),
}
"""By `Verdict.check`; those of `harness` come with the status `error`, never as a failure."""
