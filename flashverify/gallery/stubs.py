"""Import without what no kernel needs: packages without their `__init__`, and modules that are not installed."""

from __future__ import annotations

import importlib.machinery
import sys
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableSequence, Sequence

__all__ = ["Anything", "import_without"]


class Anything:
    """What a stub holds: false, empty and zero, but for the given attributes; as a decorator it returns what it decorates."""

    def __init__(self, *args: object, **given: object) -> None:  # noqa: ARG002
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *args: Any, **given: object) -> Any:  # noqa: D102
        return args[0] if len(args) == 1 and not given and callable(args[0]) else Anything()

    def __getitem__(self, key: object) -> Any:
        return Anything()

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __int__(self) -> int:
        return 0

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (object,) if len(bases) == 1 else ()

    def __or__(self, other: object) -> Any:
        return Anything()

    __ror__ = __or__


class _Stub(ModuleType):
    __path__: MutableSequence[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Anything()


class _StubLoader(Loader):
    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = values

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        stub = _Stub(spec.name)
        vars(stub).update(self.values)
        return stub

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Finder(MetaPathFinder):
    def __init__(self, bare: Sequence[str], stubs: Sequence[str], values: Mapping[str, Mapping[str, object]]) -> None:
        self.bare, self.stubs, self.values = frozenset(bare), tuple(stubs), values

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if any(name == stub or name.startswith(f"{stub}.") for stub in self.stubs):
            return importlib.machinery.ModuleSpec(name, _StubLoader(self.values.get(name, {})), is_package=True)
        if name not in self.bare:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        if found is None or found.submodule_search_locations is None:
            return found
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = list(found.submodule_search_locations)
        return spec


def import_without(
    bare: Sequence[str], stubs: Sequence[str], values: Mapping[str, Mapping[str, object]] | None = None
) -> None:
    """From now on, import the packages of `bare` without running their `__init__`, and find anything in the modules of `stubs`.

    Args:
        bare: names of packages.
        stubs: names of modules; what is below them is a stub too.
        values: attributes of stubs, by module.
    """
    sys.meta_path.insert(0, _Finder(bare, stubs, values or {}))
