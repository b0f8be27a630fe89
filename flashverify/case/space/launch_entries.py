"""The entries of the fixed matrix about launch configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.supports import Launch, Supports

__all__ = ["launch_entries"]

_LARGEST_TILE = 256
"""Launch values above it are no sizes of tiles."""
_LISTED = 64
"""Configurations that the fixed matrix has all of; of more it has every value, and the extremes against each other."""


def launch_entries(supports: Supports) -> Iterator[str]:
    """Entries of the fixed matrix: every configuration, or every value of every parameter and the extremes against each other."""
    configs = supports.launches()
    if not configs:
        return
    if supports.even_launches and len(configs) <= _LISTED:
        for number, config in enumerate(configs):
            long = max([70, *(value + 1 for _, value in config if value <= _LARGEST_TILE)])
            causal = f"causal={supports.causal[0]}" if "causal" in supports.masks and supports.causal else ""
            yield f"launch={_text(config)} seq_q={long} seq_k={long} {causal}"
            if number % 2:
                shorter = f"klen={long - 20}" if "key_lengths" in supports.masks else ""
                yield f"launch={_text(config)} seq_q=40 seq_k={long} {shorter}"
        return
    for config in configs if supports.launch_configs else _spread(supports):
        for rest in ("seq_q=70 seq_k=70 causal=top-left", "seq_q=40 seq_k=70 klen=50"):
            yield f"launch={_text(config)} {rest}"


def _text(config: Launch) -> str:
    return ",".join(f"{name}:{value}" for name, value in config)


def _spread(supports: Supports) -> list[Launch]:
    names = [name for name, _ in supports.launch]
    values = [options for _, options in supports.launch]
    rows = [
        tuple(v[(n + shift * i) % len(v)] for i, v in enumerate(values))
        for shift in (0, 1, 3)
        for n in range(max(map(len, values)))
    ]
    return [tuple(zip(names, row, strict=True)) for row in dict.fromkeys(rows)]
