"""Which GPUs there are, and which of them a worker uses: the workers take turns over them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.child_process import VISIBLE
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["PER_GPU", "chosen_gpus", "gpu_of_worker", "gpu_words", "visible_gpus"]

PER_GPU = 14
"""Workers that share a GPU at most: most of a small case is judged on the CPU."""
_DEVICES = Path("/dev")


def visible_gpus(environ: Mapping[str, str], devices: Path = _DEVICES) -> tuple[str, ...]:
    """The GPUs as `CUDA_VISIBLE_DEVICES` names them, or by number; answered without importing torch.

    Args:
        environ: of the process.
        devices: folder of the device files.
    """
    named = environ.get(VISIBLE)
    if named is not None:
        return tuple(word.strip() for word in named.split(",") if word.strip() not in ("", "-1"))
    numbers = sorted(int(path.name[6:]) for path in devices.glob("nvidia*") if path.name[6:].isdigit())
    return tuple(map(str, range(len(numbers))))


def chosen_gpus(asked: str | None, visible: Sequence[str]) -> tuple[str, ...]:
    """The GPUs of a campaign; none where one at most is visible and none was asked for.

    Args:
        asked: a list with commas, as in `CUDA_VISIBLE_DEVICES`; `all`, like None, is every visible one.
        visible: the GPUs of this process; none where its subjects run on the CPU.

    Raises:
        UsageError: one that was asked for is not visible.
    """
    if asked is None or asked == "all":
        return tuple(visible) if len(visible) > 1 else ()
    names = tuple(asked.split(","))
    if missing := [name for name in names if name not in visible]:
        accepted = ", ".join(visible) or "the subjects do not run on one"
        raise UsageError(f"--gpus={asked!r} is not accepted: {missing[0]!r} is no visible GPU ({accepted})")
    return names


def gpu_of_worker(number: int, gpus: Sequence[str]) -> str:
    """The GPU of a worker; empty where there is none to choose."""
    return gpus[number % len(gpus)] if gpus else ""


def gpu_words(gpu: str) -> str:
    """What a worker has for its own, in words: `GPU 3`, or a place of a cluster by its name, such as `10.0.0.3/cpu`."""
    return gpu if "/" in gpu else f"GPU {gpu}"
