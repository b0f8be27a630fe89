"""The sizes of a problem that bounds depend on."""

from dataclasses import dataclass

__all__ = ["Shape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes that the coefficients depend on: `group` query heads a kv head, `Sq` queries, `Sk` keys, head sizes `D` and `Dv`."""

    group: int
    Sq: int
    Sk: int
    D: int
    Dv: int
