"""From which size on a change is a reason to look, each with its reason; `[tool.flashverify.compare]` sets them."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from flashverify.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Thresholds", "read_thresholds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The thresholds in force. A case that newly fails needs none: it is never merged.

    Attributes:
        worst_growth: factor by which the worst ratio of an output, or the 99th percentile of the worst ratios of its cases, may grow. The
            worst of a few hundred cases is one element; another order of summation moves it by some percent, a lost bit doubles it.
        error_growth: factor by which the root mean square error of the cases may grow on average, where the growth is significant. A mean
            over all elements of all cases moves by less than a percent where nothing but the order of summation changed.
        bias_shift: how far the mean signed ratio may move, as a share of the bound, where the move is significant. Rounding to nearest
            has none.
        drift_shift: how far the mean of sign(exact) * ratio may move, likewise. Truncation drifts toward zero.
        width_growth: factor by which bounds may grow because the later form is looser.
        negligible: worst ratios below it are no reason, however they grew: a hundredth of what rounding may do.
        time_growth: factor by which the time of a pass may grow, where it grew by more than one side differs from itself. None: a
            slower kernel is said, and no reason. What speed is worth is not for the harness to know.
        memory_growth: factor by which the largest memory of a pass may grow; None likewise.
    """

    worst_growth: float = 1.1
    error_growth: float = 1.1
    bias_shift: float = 0.001
    drift_shift: float = 0.003
    width_growth: float = 1.1
    negligible: float = 0.01
    time_growth: float | None = None
    memory_growth: float | None = None


_FACTORS = ("worst_growth", "error_growth", "width_growth", "time_growth", "memory_growth")


def read_thresholds(folder: Path) -> Thresholds:
    """Those of `[tool.flashverify.compare]` in the nearest pyproject.toml upwards of a folder, defaults for the rest.

    Raises:
        ConfigError: a key is unknown, or a value is no number in its range.
    """
    file = next((p / "pyproject.toml" for p in (folder, *folder.parents) if (p / "pyproject.toml").is_file()), None)
    if file is None:
        return Thresholds()
    try:
        table = (
            tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("flashverify", {}).get("compare", {})
        )
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error
    known = [field.name.replace("_", "-") for field in fields(Thresholds)]
    if not isinstance(table, dict):
        raise ConfigError(
            f"[tool.flashverify] compare={table!r} of {file} is not accepted: a table with {', '.join(known)}"
        )
    found = {}
    for key, value in table.items():
        if key not in known:
            raise ConfigError(
                f"unknown key {key!r} in [tool.flashverify.compare] of {file}; accepted: {', '.join(known)}"
            )
        name = key.replace("-", "_")
        least = 1.0 if name in _FACTORS else 0.0
        if not _number(value) or not least <= value < math.inf:
            accepted = "a factor of at least 1" if name in _FACTORS else "a number of at least 0"
            raise ConfigError(f"[tool.flashverify.compare] {key}={value!r} is not accepted: {accepted}")
        found[name] = float(value)
    return Thresholds(**found)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
