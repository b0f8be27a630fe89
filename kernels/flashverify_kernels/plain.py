"""What an operator can be given in place of a Python object: whole numbers of 64 bits, floats, lists of whole numbers; and back."""

from collections.abc import Sequence
from typing import Any

import torch

from flashverify_kernels.config import Configs, LaunchConfig
from flashverify_kernels.options import Window

_UNBOUNDED = -1
_FARTHEST = 2**62
SEEDS = 2**64
_KINDS = ("forward", "dq", "dkdv")
_NO_CONFIG = [0] * 6


class NotPlainError(TypeError):
    """An option has a type or value that no operator takes; the checks of the arguments say which."""

    def __init__(self) -> None:
        super().__init__("an option has a type or value that an operator cannot take")


def required(value: Any, kind: type) -> Any:
    """`value`, which must be a `kind`."""
    if not isinstance(value, kind):
        raise NotPlainError
    return value


def whole(value: Any) -> Any:
    """A whole number of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)) or not -(2**63) <= value < 2**63:
        raise NotPlainError
    return value


def number(value: Any) -> float | None:
    """A finite number as a float."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 2.0**1000:
        raise NotPlainError
    return float(value)


def signed(seed: int) -> int:
    """The whole number of 64 bits with a sign that has the bits of `seed`."""
    return seed - SEEDS if seed >= SEEDS // 2 else seed


def from_window(window: Any) -> list[int] | None:
    """Both sides of a window; one without an end is -1."""
    if window is None:
        return None
    if not isinstance(window, tuple) or len(window) != 2:
        raise NotPlainError
    for side in window:
        if side is not None and (isinstance(side, bool) or not isinstance(side, (int, torch.SymInt)) or side < 0):
            raise NotPlainError
    return [_UNBOUNDED if side is None else min(side, _FARTHEST) for side in window]


def to_window(window: Sequence[int] | None) -> Window | None:
    """The window of what `from_window` gives."""
    if window is None:
        return None
    left, right = (None if side == _UNBOUNDED else side for side in window)
    return left, right


def from_config(config: LaunchConfig) -> list[int]:
    """A launch configuration as whole numbers, in the order of its attributes."""
    required(config, LaunchConfig)
    sizes = (config.block_m, config.block_n, config.num_warps, config.num_stages)
    return [*map(whole, sizes), *(int(required(flag, bool)) for flag in (config.descriptors, config.hopper))]


def to_config(values: Sequence[int]) -> LaunchConfig | None:
    """The launch configuration of what `from_config` gives."""
    block_m, block_n, num_warps, num_stages, descriptors, hopper = values
    return LaunchConfig(
        block_m=block_m,
        block_n=block_n,
        num_warps=num_warps,
        num_stages=num_stages,
        descriptors=bool(descriptors),
        hopper=bool(hopper),
    )


def from_configs(configs: Configs | None) -> list[int] | None:
    """The launch configurations of all kernels behind each other; one that is all 0 is the default."""
    if configs is None:
        return None
    required(configs, Configs)
    found: list[int] = []
    for config in (configs.forward, configs.dq, configs.dkdv):
        values = _NO_CONFIG if config is None else from_config(config)
        if config is not None and values == _NO_CONFIG:
            raise NotPlainError
        found += values
    return found


def to_configs(values: Sequence[int] | None) -> Configs | None:
    """The launch configurations of what `from_configs` gives."""
    if values is None:
        return None
    size = len(_NO_CONFIG)
    parts = [list(values[n * size : (n + 1) * size]) for n in range(len(_KINDS))]
    return Configs(**{kind: to_config(part) if any(part) else None for kind, part in zip(_KINDS, parts, strict=True)})
