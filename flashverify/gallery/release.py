"""What the gallery knows of a package: facts, nothing of it loaded."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Kernel", "Release"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel, or a family of them behind one function.

    Args:
        name: of the subject in the module of adapters.
        what: the function that is judged, and of what it is given.
        module: of adapters in `flashverify.gallery.kernels`, where it is not that of the release.
        findings: hand judgement of what was found in the tried version: `defect: ...`, with the file that describes it, or `limit: ...`.
    """

    name: str
    what: str
    findings: tuple[str, ...] = ()
    module: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A package with attention kernels, at the version that was tried.

    Args:
        name: of the gallery, and of the module of adapters in `flashverify.gallery.kernels`.
        distribution: its name in the package index; empty for torch itself, and for a file that the user names.
        version: the tried one; of a file the first 16 digits of its SHA-256.
        licence: as the package states it.
        kernels: what is judged.
        needs: other distributions that its kernels import, small ones.
        source: it is unpacked from its source archive, because the wheel lacks the kernels or does not exist.
        settings: environment variables that let its source archive state its metadata without a GPU toolkit.
        bare: packages whose `__init__` is left out: it imports what no kernel needs.
        file: it is a file that the user names.
        stubs: modules, with what is below them, that are not installed and that no kernel needs: anything is found in them.
    """

    name: str
    distribution: str
    version: str
    licence: str
    kernels: tuple[Kernel, ...]
    needs: tuple[str, ...] = ()
    source: bool = False
    settings: tuple[tuple[str, str], ...] = ()
    bare: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ()
    file: bool = False

    def spec(self, kernel: Kernel) -> str:
        """What `--subject` takes."""
        return f"flashverify.gallery.kernels.{kernel.module or self.name}:{kernel.name}"
