"""Registers, local memory, spills inside loops and registers that nothing sets, from what `cuobjdump` prints of a cubin."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass

__all__ = ["Resources", "loop_spills", "resources", "unset_registers"]

_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?);", re.MULTILINE)
_OPERATION = re.compile(r"(?:@!?U?P\w+\s+)?(\w+)(\S*)\s+(.*)")
_TARGET = re.compile(r"\bBRA(?:\.\w+)*\s.*?(0x[0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class Resources:
    """Of one kernel.

    Attributes:
        registers: per thread.
        stack: bytes of local memory per thread.
        loop_spills: accesses to local memory in innermost loops.
        unset: (address, instruction) that read a uniform register before anything sets it.
    """

    registers: int
    stack: int
    loop_spills: int
    unset: tuple[tuple[str, str], ...]


def resources(cubin: bytes, cuobjdump: str) -> Resources:
    """What one kernel uses.

    Raises:
        RuntimeError: the tool printed something else.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = _call(cuobjdump, "--dump-resource-usage", file.name)
        found = re.search(r"REG:(\d+) STACK:(\d+)", text)
        if found is None:
            raise RuntimeError(f"cuobjdump: no resource usage in its output: {text[:200]!r}")
        sass = _call(cuobjdump, "--dump-sass", file.name)
    return Resources(int(found[1]), int(found[2]), loop_spills(sass) if int(found[2]) else 0, unset_registers(sass))


def loop_spills(sass: str) -> int:
    """Loads and stores of local memory inside loops that hold no other loop."""
    code = [(int(address, 16), text) for address, text in _INSTRUCTION.findall(sass)]
    loops = []
    for address, text in code:
        target = _TARGET.search(text)
        if target is not None and int(target[1], 16) < address:
            loops.append((int(target[1], 16), address))
    inner = [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    local = [address for address, text in code if re.search(r"\b(?:LDL|STL)\b", text)]
    return sum(any(low <= address <= high for low, high in inner) for address in local)


def unset_registers(sass: str) -> tuple[tuple[str, str], ...]:
    """Arithmetic on uniform registers of which no instruction before it, in the order of addresses, sets one that it reads.

    The code of a kernel is entered at its lowest address and a value flows upwards, but for what a loop carries, which is set before the
    loop; so such a read is a defect of the assembler. Each register counts once.
    """
    known: set[int] = set()
    found = []
    for address, text in _INSTRUCTION.findall(sass):
        numbers = [int(number) for number in re.findall(r"\bUR(\d+)\b", text)]
        parts = _OPERATION.match(text)
        if not numbers or parts is None:
            continue
        name, suffix, operands = parts.groups()
        sets = operands.startswith("UR")
        arithmetic = name.startswith("U") and name != "ULDC"
        unset = [number for number in numbers[sets:] if number not in known] if arithmetic else []
        if unset:
            found.append((address, text))
        known.update(unset)
        if sets:
            wide = 4 if ".128" in suffix else 2 if ".64" in suffix or ".WIDE" in suffix else 1
            known.update(range(numbers[0], numbers[0] + wide))
    return tuple(found)


def _call(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
