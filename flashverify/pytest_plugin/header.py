"""On what the cases of a session are judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign import environment
from flashverify.errors import FlashverifyError
from flashverify.judge.wording import evidence_text, plural
from flashverify.pytest_plugin.stash import ANNOUNCED, marked, runtime_of

if TYPE_CHECKING:
    import pytest

__all__ = ["announce", "header_lines"]


def header_lines(config: pytest.Config) -> list[str]:
    """Version, seed, mode and machine; the error where the settings are not accepted."""
    try:
        runtime = runtime_of(config)
    except FlashverifyError as error:
        import pytest

        raise pytest.UsageError(f"flashverify: {error}") from error
    found = environment.collect(runtime.device)
    cuda = "compiled kernels on " + (f"GPUs {', '.join(runtime.gpus)}" if runtime.gpus else "the GPU")
    mode = cuda if runtime.device == "cuda" else evidence_text("interpreter")
    numerics = f" ({runtime.numerics})" if runtime.numerics != "ieee" else ""
    packages = ", ".join(f"{name} {found[name]}" for name in ("torch", "triton"))
    return [
        f"flashverify {found['flashverify']}: seed {runtime.seed}; {mode}{numerics}; {found['machine']}, "
        f"{plural(environment.cpu_count(), 'CPU')}, {packages}"
    ]


def announce(config: pytest.Config) -> None:
    """Say it, once, in the process that starts the workers of xdist, where one of them collected marked tests."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or config.stash.get(ANNOUNCED, False) or not marked(config):
        return
    config.stash[ANNOUNCED] = True
    if config.get_verbosity() >= 0:
        reporter.ensure_newline()
        for line in header_lines(config):
            reporter.write_line(line)
