"""Head dims to draw from."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashverify.case.space.profiles import Profile
    from flashverify.case.supports import Supports

    Dims = list[tuple[int, int]]

__all__ = ["dim_choices"]

_ODD = ((1, 1), (3, 3), (5, 7), (17, 17), (33, 33), (65, 31), (80, 127))
_EVEN = ((4, 4), (12, 20), (36, 36), (68, 100))
_WIDE = ((320, 320), (512, 512), (576, 512), (192, 320))
"""Pairs for subjects that declare finer multiples than 8, or more than 256."""
_FINE = 8
_USUAL_MOST = 256


def dim_choices(supports: Supports, profile: Profile) -> Dims:
    """(dim_qk, dim_v) of the profile that the subject has, and those beyond the usual ones that it declares.

    Args:
        supports: what the subject declares.
        profile: how large the cases may be.
    """
    shared_alone = "separate" not in supports.kv
    if supports.dim_pairs is not None:
        return [(d, dv) for d, dv in supports.dim_pairs if dv <= d or not shared_alone]
    pairs: Dims = list(profile.dims)
    if supports.dim_multiple < _FINE:
        pairs += [*_EVEN, *_ODD]
    if supports.dim_max > _USUAL_MOST:
        pairs += _WIDE
    dims = [p for p in pairs if all(d % supports.dim_multiple == 0 and d <= supports.dim_max for d in p)]
    if shared_alone:
        dims = [(d, dv) for d, dv in dims if dv <= d]
    return [(d, dv) for d, dv in dims if d == dv or not supports.equal_dims] or [(supports.dim_multiple,) * 2]
