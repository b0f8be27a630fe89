"""How large the drawn cases may be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt

__all__ = ["CPU", "GPU", "LONGEST", "LONG_CPU", "LONG_GPU", "PROFILES", "Profile", "out_of_reach", "profile_of"]

LONGEST = 65_536
"""Longest query and key sequence of the profile `long`."""
PROFILES = ("cpu", "gpu", "long")
"""The names of profiles; that of the device where none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How large the drawn cases may be.

    Attributes:
        heads: (batch, heads_q, heads_kv), from plain to wild.
        wide_heads: (batch, heads_q, heads_kv) with large groups, drawn in a few cases.
        tile: rows and keys of a tile where no launch value says it.
        dims: (dim_qk, dim_v), from plain to wild; a pair that stands twice is drawn twice as often.
        max_seq: longest query and key sequence.
        max_long: longest one where the other is short.
        least_long: least length that the longest one is drawn from.
        max_pairs: of seq_q * seq_k.
        far: least_long, max_long and max_pairs of cases with ALiBi, whose distances fp16 holds up to 2048; None is no others.
        max_work: of batch * heads_q * seq_q * seq_k * (dim_qk + dim_v); up to four times as much where lengths pass the largest tile.
        kinds: combinations of dims, dtype, mask parts, alignment and launch parameters that are drawn of a subject that
            compiles; None is every one.
        log_uniform: lengths are drawn evenly by octave, decode-shaped, prefill-shaped and independent ones.
        max_tiles: along one axis, of a subject with launch configurations: the interpreter walks over them one by one. None is any number.
        max_elements: of one tensor of log-uniform lengths: batch * heads_q * length * head dim.
    """

    heads: tuple[tuple[int, int, int], ...]
    wide_heads: tuple[tuple[int, int, int], ...]
    tile: tuple[int, int]
    dims: tuple[tuple[int, int], ...]
    max_seq: int
    max_long: int
    max_pairs: int
    max_work: int
    far: tuple[int, int, int] | None = None
    kinds: int | None = None
    least_long: int = 1
    log_uniform: bool = False
    max_elements: int = 2**23
    max_tiles: int | None = None

    def reaching(self, features: frozenset[str]) -> Profile:
        """The profile of cases with these features."""
        if self.far is None or "alibi" not in features:
            return self
        least, most, pairs = self.far
        return replace(self, least_long=least, max_long=most, max_pairs=pairs)


_WIDE_HEADS = (
    *((1, 5, 1), (1, 7, 1), (1, 8, 1), (1, 10, 2)) * 2,
    (1, 12, 1),
    (1, 16, 1),
    (1, 17, 1),
    (1, 24, 1),
    (1, 34, 2),
    (1, 48, 2),
    (1, 64, 1),
)
"""Groups of 5 to 64 query heads, powers of two and others."""

CPU = Profile(
    heads=(
        (1, 1, 1),
        (1, 2, 2),
        (1, 2, 1),
        (2, 1, 1),
        (1, 3, 1),
        (3, 1, 1),
        (1, 4, 2),
        (2, 2, 1),
        (1, 4, 1),
        (2, 2, 2),
        (1, 6, 2),
    ),
    wide_heads=_WIDE_HEADS,
    tile=(64, 64),
    dims=(
        *((8, 8), (16, 16), (16, 16), (32, 32), (24, 24), (40, 40), (64, 64), (64, 64), (72, 72), (128, 128)),
        *((8, 32), (32, 16), (16, 64), (64, 24), (40, 72), (128, 64), (256, 256), (256, 64)),
    ),
    max_seq=80,
    max_long=260,
    max_pairs=80**2,
    max_work=1_600_000,
)
"""Interpreted kernels: a case in well under a second on one core."""

GPU = Profile(
    heads=(
        *(
            (1, 1, 1),
            (1, 2, 2),
            (1, 2, 1),
            (2, 1, 1),
            (1, 3, 1),
            (1, 4, 2),
            (2, 2, 1),
            (1, 6, 2),
            (1, 1, 1),
            (1, 2, 1),
            (3, 1, 1),
        ),
        *((1, 8, 1), (3, 4, 2), (16, 1, 1), (1, 12, 2)),
        *((2, 4, 4), (4, 4, 2), (1, 8, 8), (8, 2, 2)),
    ),
    wide_heads=(*_WIDE_HEADS, (2, 48, 2), (1, 96, 2), (1, 128, 2)),
    tile=(128, 64),
    dims=(
        (64, 64),
        (128, 128),
        (64, 64),
        (128, 128),
        (32, 32),
        (16, 16),
        (40, 40),
        (72, 72),
        (96, 96),
        (256, 256),
        (128, 64),
        (64, 128),
    ),
    max_seq=160,
    max_long=2100,
    max_pairs=160**2,
    max_work=2**29,
    far=(2049, 4096, 2**19),
    kinds=96,
)
"""Compiled kernels: few pairs of head dims and a finite list of kinds, because each is a compilation of its own."""

LONG_CPU = Profile(
    heads=((1, 1, 1), (1, 2, 1), (1, 2, 2), (2, 1, 1), (1, 4, 2), (1, 4, 1)),
    wide_heads=(),
    tile=(64, 64),
    dims=((16, 16), (16, 16), (32, 32), (64, 64), (8, 32), (128, 128), (72, 40)),
    max_seq=LONGEST,
    max_long=LONGEST,
    max_pairs=2**20,
    max_work=2**25,
    max_tiles=512,
    log_uniform=True,
)
"""Twenty times the work of `CPU`: some seconds a case in the interpreter. Every row is judged."""

LONG_GPU = Profile(
    heads=((1, 1, 1), (1, 2, 1), (1, 2, 2), (2, 1, 1), (1, 4, 2), (1, 8, 1), (4, 1, 1), (1, 12, 2), (1, 32, 8)),
    wide_heads=(),
    tile=(128, 64),
    dims=((64, 64), (128, 128), (64, 64), (128, 128), (32, 32), (16, 16), (96, 96), (256, 256), (128, 64), (64, 128)),
    max_seq=LONGEST,
    max_long=LONGEST,
    max_pairs=LONGEST**2,
    max_work=2**40,
    kinds=96,
    log_uniform=True,
)
"""Up to 65,536 rows and as many keys of one head of 128 channels; of large cases the oracle judges rows and keys that are sampled."""

_OF_DEVICE = {"cpu": CPU, "cuda": GPU}
_NAMED = {
    "cpu": {"cpu": CPU, "cuda": CPU},
    "gpu": {"cpu": GPU, "cuda": GPU},
    "long": {"cpu": LONG_CPU, "cuda": LONG_GPU},
}


def profile_of(device: str, name: str = "") -> Profile:
    """How large the cases are that are drawn for a subject.

    Args:
        device: `cpu` or `cuda`, where the subject runs.
        name: one of `PROFILES`; empty is that of the device.
    """
    return _NAMED[name][device] if name else _OF_DEVICE[device]


def out_of_reach(device: str, name: str) -> str:
    """Which lengths a profile of that name does not draw on the device, though it draws each of them with others; empty for none."""
    profile = profile_of(device, name)
    if not profile.log_uniform:
        return ""
    pairs = min(profile.max_pairs, profile.max_work // min(d + dv for d, dv in profile.dims))
    if pairs >= profile.max_seq**2:
        return ""
    return (
        f"profile {name} on a {device.upper()}: out of reach are more than {pairs // profile.max_seq:,} rows over {profile.max_seq:,} keys, "
        f"more than {isqrt(pairs):,} over as many, more than {pairs:,} pairs of a head"
        + (
            f", and of a kernel with launch configurations more than {profile.max_tiles} tiles in a row"
            if profile.max_tiles
            else ""
        )
        + "; a GPU reaches all of them"
    )
