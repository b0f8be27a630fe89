"""The disk of a campaign with faults: it takes the place of the functions of `flashverify.campaign.store.disk`."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashverify.campaign.store import disk

if TYPE_CHECKING:
    import random

    from .faults import Steps

__all__ = ["FaultyDisk"]


@dataclass
class _File:
    """A file or a folder; `synced` is what of its data a loss of power leaves, None for a folder."""

    synced: bytes | None


class FaultyDisk:
    """Counts every step and knows what of a folder is on the disk for certain.

    Args:
        steps: counts them and does the fault.
        root: the folder; what stands there at the beginning is on the disk.
    """

    def __init__(self, steps: Steps, root: Path) -> None:
        self._steps, self._root = steps, root
        self._names: dict[str, _File] = {}  # as the running system shows them
        for path in (root, *sorted(root.rglob("*"))) if root.exists() else ():
            self._names[str(path)] = _File(None if path.is_dir() else path.read_bytes())
        self._durable = dict(self._names)
        self._open: dict[int, _File] = {}
        self._real = {name: getattr(disk, name) for name in disk.__all__}
        # What a sync means is known here, and a real one takes long.
        self._calls = self._real | dict.fromkeys(("sync", "sync_folder"), lambda _: None)

    def install(self) -> None:
        """From now on every step of this process goes through here."""
        self._steps.lose_power = self._lose_power
        for name in self._real:
            setattr(disk, name, getattr(self, name))

    def remove_layer(self) -> None:
        """The disk is as it was."""
        for name, function in self._real.items():
            setattr(disk, name, function)

    def _step(self, name: str, what: Any, *given: Any) -> Any:
        return self._steps.step(name, os.path.basename(str(what)), self._calls[name], *given)

    def make_folder(self, path: Path) -> None:  # noqa: D102
        self._step("make_folder", path, path)
        self._names[_name(path)] = _File(None)

    def open_file(self, path: Path, flags: int) -> int:  # noqa: D102
        if not flags & os.O_CREAT:
            return int(self._real["open_file"](path, flags))
        descriptor = int(self._step("open_file", path, path, flags))
        self._open[descriptor] = self._names.setdefault(_name(path), _File(b""))
        return descriptor

    def create(self, folder: Path, prefix: str, suffix: str) -> tuple[int, str]:  # noqa: D102
        descriptor, path = self._step("create", prefix, folder, prefix, suffix)
        self._open[descriptor] = self._names[_name(path)] = _File(b"")
        return descriptor, path

    def write(self, descriptor: int, data: bytes) -> int:  # noqa: D102
        return int(self._step("write", _path(descriptor), descriptor, data))

    def write_at(self, descriptor: int, data: bytes, offset: int) -> int:  # noqa: D102
        return int(self._step("write_at", _path(descriptor), descriptor, data, offset))

    def sync(self, descriptor: int) -> None:  # noqa: D102
        self._step("sync", _path(descriptor), descriptor)
        self._open.setdefault(descriptor, _File(b"")).synced = Path(_path(descriptor)).read_bytes()

    def close(self, descriptor: int) -> None:  # noqa: D102
        self._open.pop(descriptor, None)
        self._real["close"](descriptor)

    def sync_folder(self, path: Path) -> None:  # noqa: D102
        self._step("sync_folder", path, path)
        inside = {name for name in (*self._names, *self._durable) if os.path.dirname(name) == _name(path)}
        for name in inside:
            if name in self._names:
                self._durable[name] = self._names[name]
            else:
                del self._durable[name]

    def move(self, old: Path | str, new: Path) -> None:  # noqa: D102
        self._step("move", new, old, new)
        self._names[_name(new)] = self._names.pop(_name(old), _File(b""))

    def remove(self, path: Path | str) -> None:  # noqa: D102
        self._step("remove", path, path)
        self._names.pop(_name(path), None)

    def remove_folder(self, path: Path) -> None:  # noqa: D102
        self._step("remove_folder", path, path)
        self._names.pop(_name(path), None)

    def _lose_power(self, how: str, pick: random.Random) -> None:
        """Leave of the folder what a loss of power may leave.

        Args:
            how: `lost`, what is certain; `kept`, every name, with torn data; `mixed`, of each name one of the two.
            pick: chance.
        """
        now = {name: _bytes(name) for name in self._names}
        left: dict[str, bytes | None] = {}
        for name in {*self._names, *self._durable}:
            kept = how == "kept" or (how == "mixed" and pick.random() < 0.5)
            file = (self._names if kept else self._durable).get(name)
            if file is None:
                continue
            data = file.synced
            if kept and data is not None and file is self._names.get(name):
                whole = now[name] or b""
                more = whole[len(data) :] if whole.startswith(data) else b""
                data += more[: len(more) // 2] if data else b""
            left[name] = data
        shutil.rmtree(self._root, ignore_errors=True)
        there = {str(self._root.parent)}
        for name in sorted(left):
            if os.path.dirname(name) not in there:
                continue
            data = left[name]
            if data is None:
                os.mkdir(name)
                there.add(name)
            else:
                Path(name).write_bytes(data)


def _name(path: Path | str) -> str:
    return os.path.abspath(path)


def _path(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


def _bytes(name: str) -> bytes | None:
    try:
        return Path(name).read_bytes()
    except OSError:
        return None
