"""Hazards in the intermediate code of a GPU, in which Triton has chosen how values lie in registers.

| kind | what is looked for | why |
|---|---|---|
| `narrow-product` | a product of `mma.sync` whose operands lie wider in registers than the axis that is summed | part of the sum is left out or counted again |

A lane holds `kWidth` neighbouring elements of the summed axis, and four lanes lie along it. Triton takes `kWidth` from the narrowest
type that an operand was loaded as, twice that of unpacked bytes; 3.6 lowers an operand of `4 kWidth` elements wrong where the axis has fewer.
"""

from __future__ import annotations

import re

from flashverify.compiling.declared import is_declared
from flashverify.compiling.locations import locations_of, where
from flashverify.compiling.records import Hazard

__all__ = ["find_layout_hazards"]

_LANES = 4
_LAYOUT = re.compile(r"^(#\w+) = #ttg\.nvidia_mma<\{versionMajor = (\d+)", re.MULTILINE)
_FIRST_OPERAND = re.compile(r"tensor<\d+x(\d+)x\w+, #ttg\.dot_op<\{opIdx = 0, parent = (#\w+), kWidth = (\d+)\}>>")
_SYNCHRONOUS = "2"
"""The major version of layouts of `mma.sync`."""


def find_layout_hazards(ttgir: str) -> tuple[Hazard, ...]:
    """The hazards of one module, each place once; without those that their source line declares.

    Args:
        ttgir: text of the module, with its locations.
    """
    layouts, locations = dict(_LAYOUT.findall(ttgir)), locations_of(ttgir)
    found = set()
    for line in ttgir.splitlines():
        operand = _FIRST_OPERAND.search(line) if "tt.dot " in line else None
        if operand is None or layouts.get(operand[2]) != _SYNCHRONOUS:
            continue
        summed, width = int(operand[1]), _LANES * int(operand[3])
        if width > summed:
            what = f"a product sums over {summed} elements, and its operands lie {width} wide: Triton 3.6 computes it wrong"
            found.add(Hazard(kind="narrow-product", where=where(line, locations), what=what))
    return tuple(sorted(hazard for hazard in found if not is_declared(hazard.kind, hazard.where)))
