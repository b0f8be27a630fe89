import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dropout:
    """Dropout of softmax weights: each is kept with probability 1 - p, and what is kept is divided by 1 - p.

    Which are kept depends on nothing but `seed`, `offset` and the numbers of batch (or packed sequence), query head, query and
    key (see `device.dropout`), so that the backward repeats the forward; a new offset per call gives new draws.

    Attributes:
        p: share that is dropped, from 0 to below 1; 0 is no dropout, bit for bit.
        seed: 0 to 2^64 - 1.
        offset: 0 to 2^32 - 1.
    """

    p: float
    seed: int = 0
    offset: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.p, bool) or not isinstance(self.p, (int, float)):
            raise TypeError(f"p: expected a number, got {self.p!r} ({type(self.p).__name__})")
        if not 0 <= self.p < 1:
            raise ValueError(f"p: expected a number from 0 to below 1, got {self.p!r}")
        for name, value, bits in (("seed", self.seed, 64), ("offset", self.offset, 32)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name}: expected a whole number, got {value!r} ({type(value).__name__})")
            if not 0 <= value < 1 << bits:
                raise ValueError(f"{name}: expected a whole number from 0 to 2^{bits} - 1, got {value!r}")

    @property
    def threshold(self) -> int:
        """The first of the 2^32 random words that is kept."""
        return math.floor(self.p * 2**32)
