"""A relative position bias: a table per head, read by the bucket of the distance key - position, as in T5."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from flashverify.case.codec import ints, ints_text
from flashverify.case.modifiers.modifier import FAR, Modifier
from flashverify.case.require import require
from flashverify.case.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.case.masks.part import Source
    from flashverify.case.supports import Supports
    from flashverify.case.values.philox import Reals

__all__ = ["RELATIVE_BIAS", "RelativeBias", "bucket_of_distance", "relative_bias_values"]

_MOST_BUCKETS, _FARTHEST = 1024, 1 << 16


class RelativeBias(NamedTuple):
    """The buckets of T5: distances below half a side have one each, farther ones share them in equal ratios up to `max_distance`.

    Attributes:
        buckets: entries of the table of a head: 2 or more, with `bidirectional` an even number from 4 on.
        max_distance: the distance from which the last bucket of a side counts; more than half of that side's buckets.
        bidirectional: keys after the row have the second half of the table; otherwise bucket 0, as the row's own position.
    """

    buckets: int
    max_distance: int
    bidirectional: bool = False


@lru_cache(maxsize=64)
def bucket_of_distance(kind: RelativeBias) -> tuple[int, ...]:
    """The bucket of each distance key - position from `-max_distance` to `max_distance`, in exact integers.

    Of a side of n buckets the first `e = n // 2` are of one distance each. Bucket e + k begins at the smallest distance d with
    `d / e >= (max_distance / e)^(k / (n - e))`, which is `d^(n - e) e^k >= max_distance^k e^(n - e)`.
    """
    side = kind.buckets // 2 if kind.bidirectional else kind.buckets
    own, far = side // 2, kind.max_distance
    shared = side - own
    starts = list(range(own))
    for k in range(shared):
        least = far**k * own ** (shared - k)
        starts.append(bisect_left(range(far + 1), least, key=lambda distance: distance**shared))
    behind = [bisect_right(starts, distance) - 1 for distance in range(far + 1)]
    ahead = [side + bucket for bucket in behind] if kind.bidirectional else [0] * (far + 1)
    return (*reversed(behind), *ahead[1:])


def relative_bias_values(case: Case) -> Reals:
    """The table, `[Hq, buckets]`: zeros and integers in the regimes of that name, else by seed modulo 8.

    0 to 3: normal; 4: zeros; 5: normal, a quarter of the entries at `FAR`; 6: normal times 8; 7: integers around `FAR`.
    """
    import numpy as np

    from flashverify.case.values import philox

    shape, seed = _shape(case), case.values.seed
    assert shape is not None
    kind = seed % 8
    if case.values.regime == "integers":
        return philox.integers(seed, "relative_bias", shape, -2, 2)
    if case.values.regime == "zeros" or kind == 4:
        return np.zeros(shape)
    if kind == 7:
        return philox.integers(seed, "relative_bias", shape, -16, 16) + FAR
    values = philox.normal(seed, "relative_bias", shape)
    if kind == 5:
        values[philox.integers(seed, "relative_bias/far", shape, 0, 3) == 0] = FAR
    return values * 8.0 if kind == 6 else values


def _shape(case: Case) -> tuple[int, ...] | None:
    kind = case.logits.relative_bias
    return None if kind is None else (case.heads_q, kind[0])


def _distance_buckets(case: Case) -> tuple[int, ...] | None:
    kind = case.logits.relative_bias
    return None if kind is None else bucket_of_distance(RelativeBias(*kind))


class _RelativeBias(Modifier):
    name = "relative_bias"
    follows: Literal["distance", "number", ""] = "distance"
    tensors = (
        TensorSpec(
            name="relative_bias",
            axes=("head_q", "bucket"),
            dtype="fp32",
            values=relative_bias_values,
            shape=_shape,
            editable=True,
            finite=True,
            replaceable=True,
        ),
        TensorSpec(name="distance_buckets", axes=("distance",), dtype="int32", values=_distance_buckets),
    )

    def check(self, value: Any) -> None:
        """A `RelativeBias`, or a tuple of its three."""
        if value is None:
            return
        kinds = [type(x) for x in value] if isinstance(value, tuple) else []
        require(kinds == [int, int, bool], "relative_bias", value, "None or (buckets, max_distance, bidirectional)")
        buckets, max_distance, both = value
        side = buckets // 2 if both else buckets
        whole = side >= 2 and buckets <= _MOST_BUCKETS and not (both and buckets % 2)
        require(whole, "buckets", buckets, f"2 to {_MOST_BUCKETS}; even and from 4 on for both directions")
        inside = side // 2 < max_distance <= _FARTHEST
        require(inside, "max_distance", max_distance, f"{side // 2 + 1} to {_FARTHEST}")

    def parse(self, text: str) -> RelativeBias:
        """Buckets, largest distance, and `both` for both directions."""
        both = text.endswith(",both")
        numbers = ints(text.removesuffix(",both"))
        if len(numbers) != 2:
            raise ValueError("buckets,max_distance or buckets,max_distance,both")
        return RelativeBias(*numbers, bidirectional=both)

    def format(self, value: Any) -> str:
        """Buckets, largest distance, and `both` for both directions."""
        return ints_text(value[:2]) + (",both" if value[2] else "")

    def draw(self, source: Source, supports: Supports) -> Any:
        """Few buckets, whose ends are near, or those of T5."""
        return source.choice(
            (RelativeBias(8, 20, True), RelativeBias(6, 5), RelativeBias(32, 128), RelativeBias(4, 3, True))
        )

    def simpler(self, value: Any) -> Iterator[RelativeBias]:
        """As few buckets as there can be, of one direction, then of both."""
        yield RelativeBias(2, 2)
        if value[2]:
            yield RelativeBias(4, 2, True)


RELATIVE_BIAS = _RelativeBias()
