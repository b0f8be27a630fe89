"""Which launch configuration a case has, and lengths at the edges of its tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from flashverify.case.space.sampling import one_in, sampled_from
from flashverify.case.space.tile_sizes import LARGEST_TILE, LEAST_TILE

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.supports import Launch, Supports

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = ["draw_launch", "launch_of_key", "lengths_at_tiles"]

_EVERY = 3
"""One compile key in so many has a launch configuration where these are not drawn evenly."""
_MOST_DEFAULT = 8
"""At least one case in so many has the default configuration."""
_SMALL = 4
"""How often the smaller half of the values of a parameter stands among those that are drawn from: small tiles make several of them."""


def draw_launch(draw: Draw, supports: Supports) -> Launch:
    """A configuration of the subject, or none, which is the default one."""
    configs = supports.launches()
    if not configs:
        return ()
    if not supports.even_launches:
        if not draw(sampled_from((False, *(True,) * 5))):
            return ()
        if supports.launch_configs:
            return _of(draw, configs)
        return tuple(sorted((name, draw(sampled_from(_small_first(values)))) for name, values in supports.launch))
    return () if draw(_default(len(configs))) else _of(draw, configs)


def _small_first(values: tuple[int, ...]) -> tuple[int, ...]:
    """The values, the smaller half of them more than once."""
    ordered = sorted(values)
    return (*ordered[: (len(ordered) + 1) // 2] * (_SMALL - 1), *values)


def _default(configs: int) -> SearchStrategy[bool]:
    """Whether a case has the default configuration, as often as each other one; shrinks to true."""
    return sampled_from((True, *(False,) * min(configs, _MOST_DEFAULT - 1)))


def _of(draw: Draw, configs: tuple[Launch, ...]) -> Launch:
    found: Launch = draw(sampled_from(configs))
    return found


def launch_of_key(supports: Supports, number: int) -> Launch:
    """The configuration of the `number`-th compile key."""
    configs = supports.launches()
    if not configs:
        return ()
    if supports.even_launches:
        # One step further after each round, so that no configuration meets the same value of another period every time.
        choices = ((), *configs)
        return choices[(number + number // len(choices)) % len(choices)]
    turn = number // _EVERY
    if number % _EVERY != _EVERY - 1:
        return ()
    if supports.launch_configs:
        return configs[turn % len(configs)]
    chosen = []
    for name, values in supports.launch:
        chosen.append((name, values[turn % len(values)]))
        turn //= len(values)
    return tuple(sorted(chosen))


def lengths_at_tiles(
    draw: Draw,
    supports: Supports,
    launch: Launch,
    parts: frozenset[str],
    lengths: tuple[int, int],
    pairs: int,
    most: int,
) -> tuple[int, int]:
    """seq_q and seq_k, in three of four cases with tiles replaced by multiples of them, with one less and one more.

    Args:
        draw: of hypothesis.
        supports: what the subject declares.
        launch: configuration of the case; its values from 8 to 256 count as sizes of tiles.
        parts: of the mask.
        lengths: seq_q and seq_k, as drawn without it.
        pairs: most rows times keys; up to four times as many where both must pass the largest tile.
        most: length of the shorter side, or one more than the largest tile.
    """
    tiles = [value for _, value in launch if LEAST_TILE <= value <= LARGEST_TILE]
    if not (supports.even_launches and tiles and 0 not in lengths) or draw(one_in(4)):
        return lengths
    rows, keys = supports.rows(), supports.keys()
    pairs = max(pairs, min((max(tiles) + 1) ** 2, 4 * pairs))
    most = max(most, max(tiles) + 1)
    seq_q, seq_k = lengths
    together = supports.square or ("causal" in parts and not supports.rectangular_causal)
    if together or draw(st.booleans()):
        found = [n for n in _near(tiles) if n in rows and n in keys and n * n <= pairs and n <= most]
        if found:
            return (draw(sampled_from(found)),) * 2
        if together:
            return lengths
    seq_k = _one_of(draw, [n for n in _near(tiles) if n in keys and n * (rows.first() or 1) <= pairs], seq_k)
    seq_q = _one_of(draw, [n for n in _near(tiles) if n in rows and n * seq_k <= pairs], seq_q)
    if seq_q * seq_k > max(pairs, lengths[0] * lengths[1]) or min(seq_q, seq_k) > max(most, min(lengths)):
        return lengths
    if "tree" in parts and seq_q > seq_k:
        return (seq_k, seq_k) if seq_k in rows else lengths
    return seq_q, seq_k


def _one_of(draw: Draw, lengths: list[int], otherwise: int) -> int:
    return int(draw(sampled_from(lengths))) if lengths and not draw(one_in(4)) else otherwise


def _near(tiles: list[int]) -> list[int]:
    """One, two and three tiles, each with one position less and one more; ascending, those of the largest tile twice."""
    found = [times * tile + more for tile in (*set(tiles), max(tiles)) for times in (1, 2, 3) for more in (-1, 0, 1)]
    return sorted(found)
