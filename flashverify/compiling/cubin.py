"""Registers, local memory and spills inside loops, from what `cuobjdump` prints of a cubin."""

from __future__ import annotations

import re
import subprocess
import tempfile

__all__ = ["loop_spills", "resources"]

_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?);", re.MULTILINE)
_TARGET = re.compile(r"\bBRA(?:\.\w+)*\s.*?(0x[0-9a-f]+)")


def resources(cubin: bytes, cuobjdump: str) -> tuple[int, int, int]:
    """Registers and bytes of local memory per thread, and accesses to local memory in innermost loops.

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
        spills = loop_spills(_call(cuobjdump, "--dump-sass", file.name)) if int(found[2]) else 0
    return int(found[1]), int(found[2]), spills


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


def _call(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
