"""Wrong semantics of a factor that weights or codes of 8 bits carry, and that is not divided out again as it was put in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.diagnosis.observation import Scene

__all__ = ["FACTORS"]

_POWERS = tuple(n for n in range(-10, 11) if n)


def _times_powers(scene: Scene) -> Iterator[Alternative]:
    if scene.case.quantised is None:
        return
    for n in _POWERS:

        def finish(found: Expectations, factor: float = 2.0**n) -> Expectations:
            return found | ({"o": found["o"].times(factor)} if "o" in found else {})

        yield Alternative(finish=finish, detail=f"{2**n} times" if n > 0 else f"1 / {2**-n} of it")


FACTORS = (
    Semantics(
        name="o-times-a-power-of-two",
        sentence="O has a factor too much, such as one that weights are multiplied by before they are cast, and that is not divided out again",
        build=_times_powers,
        outputs=("o",),
        one_way=True,
    ),
)
