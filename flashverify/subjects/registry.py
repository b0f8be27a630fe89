"""Subjects by name: the registered ones, entry points of the group `flashverify.subjects`, and `module:name`.

Loading a subject imports its module, which runs that module's code.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
import traceback
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.child_process import VISIBLE
from flashverify.errors import FlashverifyError, SubjectLoadError
from flashverify.subjects.files import module_of_file
from flashverify.subjects.inability import NO_GPU, PRETEND, inability_of

if TYPE_CHECKING:
    from flashverify.subjects.interface import Subject

__all__ = ["REGISTERED", "Registered", "default_subjects", "describe_subjects", "has_gpu", "load_subject", "target_of"]


@dataclass(frozen=True, slots=True)
class Registered:
    """A subject that ships with flashverify: where it is and what it needs."""

    name: str
    target: str
    summary: str
    needs_gpu: bool = False
    bundled: bool = False


REGISTERED = (
    Registered(
        "bundled", "flashverify.subjects.bundled:BUNDLED", "the Triton kernels of flashverify_kernels", bundled=True
    ),
    Registered(
        "bundled-decode",
        "flashverify.subjects.decode:BUNDLED_DECODE",
        "the decoding kernels of flashverify_kernels: split-KV, paged; forward",
        bundled=True,
    ),
    Registered(
        "bundled-chunked",
        "flashverify.subjects.chunked:BUNDLED_CHUNKED",
        "the merge of flashverify_kernels: attention over chunks of the keys; forward",
        bundled=True,
    ),
    Registered(
        "bundled-latent",
        "flashverify.subjects.latent:BUNDLED_LATENT",
        "the kernel of flashverify_kernels over a latent cache, K and V in one buffer: decoding and prefill, paged; forward",
        bundled=True,
    ),
    Registered(
        "bundled-selected",
        "flashverify.subjects.selected:BUNDLED_SELECTED",
        "the kernels of flashverify_kernels over keys that are chosen by index, forward and backward",
        bundled=True,
    ),
    Registered(
        "bundled-quantised",
        "flashverify.subjects.quantised:BUNDLED_QUANTISED",
        "K and V in fp8, int8 or int4 with scales: the prefill of flashverify_kernels; forward",
        bundled=True,
    ),
    Registered(
        "bundled-quantised-decode",
        "flashverify.subjects.quantised:BUNDLED_QUANTISED_DECODE",
        "the same cache, split-KV decoding; forward",
        bundled=True,
    ),
    Registered(
        "bundled-ring",
        "flashverify.subjects.ring.subject:BUNDLED_RING",
        "ring attention of flashverify_kernels over 2, 4 and 8 processes of torch.distributed",
    ),
    Registered(
        "torch-cpu", "flashverify.adapters.torch_cpu:TORCH_CPU", "torch's flash attention on the CPU, with its LSE"
    ),
    Registered(
        "sdpa-flash", "flashverify.adapters.torch_cuda:SDPA_FLASH", "torch SDPA, FlashAttention-2 backend", True
    ),
    Registered("sdpa-cudnn", "flashverify.adapters.torch_cuda:SDPA_CUDNN", "torch SDPA, cuDNN backend", True),
    Registered(
        "sdpa-efficient", "flashverify.adapters.torch_cuda:SDPA_EFFICIENT", "torch SDPA, memory-efficient backend", True
    ),
    Registered("sdpa-math", "flashverify.adapters.torch_cuda:SDPA_MATH", "torch SDPA, math backend, without LSE", True),
    Registered(
        "standard", "flashverify.subjects.algorithms:STANDARD", "Algorithms 0 and 3: S and P in memory; interpreted"
    ),
    Registered(
        "paper-flash", "flashverify.subjects.algorithms:PAPER_FLASH", "FlashAttention's own loop order; interpreted"
    ),
    Registered(
        "paper-block-sparse",
        "flashverify.subjects.algorithms:PAPER_BLOCK_SPARSE",
        "the same with a pattern of live blocks (Algorithm 5); interpreted",
    ),
    Registered(
        "paper-varlen",
        "flashverify.subjects.algorithms:PAPER_VARLEN",
        "the same over packed sequences, forward and backward; interpreted",
    ),
    Registered("two-pass", "flashverify.subjects.algorithms:TWO_PASS", "normalisation first, then O; interpreted"),
    Registered(
        "rabe-staats",
        "flashverify.subjects.algorithms:RABE_STAATS",
        "Rabe and Staats: an output of each block of keys, combined at the end; forward, interpreted",
    ),
    Registered(
        "seed-document",
        "flashverify.subjects.examples.document:DOCUMENT",
        "an example of what is wrong: the kernels of a walk-through, masked loads without a fill",
    ),
    Registered(
        "seed-document-filled",
        "flashverify.subjects.examples.document:DOCUMENT_FILLED",
        "the same with masked loads filled with 0",
    ),
)


_CONTROL, _WSL = Path("/dev/nvidiactl"), Path("/dev/dxg")


@functools.cache
def _loads(library: str) -> bool:
    """Whether the dynamic linker finds a library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def has_gpu() -> bool:
    """Whether an NVIDIA device is present and `CUDA_VISIBLE_DEVICES` does not hide it; answered without importing torch.

    Linux has NVIDIA's control device. WSL2 has one device for the GPUs of every maker, so NVIDIA's library must load as well.
    """
    if os.environ.get(VISIBLE) in ("", "-1"):
        return False
    return _CONTROL.exists() or (_WSL.exists() and _loads("libcuda.so.1"))


def default_subjects() -> tuple[str, ...]:
    """Names of the bundled kernels: what the commands verify when no subject is named."""
    return tuple(entry.name for entry in REGISTERED if entry.bundled)


def describe_subjects() -> list[tuple[str, str, bool, str]]:
    """(name, summary, available, reason) of every registered subject and entry point; imports none of them."""
    rows = []
    for entry in REGISTERED:
        available = not entry.needs_gpu or has_gpu()
        rows.append((entry.name, entry.summary, available, "" if available else "needs an NVIDIA GPU"))
    rows += [(point.name, point.value, True, "") for point in entry_points(group="flashverify.subjects")]
    return rows


def target_of(spec: str) -> str:
    """The `module:name` behind a registered name or an entry point; anything else as it is."""
    registered = next((entry.target for entry in REGISTERED if entry.name == spec), None)
    if registered is not None or ":" in spec:
        return registered or spec
    return next((p.value for p in entry_points(group="flashverify.subjects") if p.name == spec), spec)


def load_subject(spec: str) -> Subject:
    """The subject that `spec` names: a registered name, an entry point or `module:name`.

    Its module is imported, which runs that module's code. The current directory, or the folder of the file, is searched after
    everything else, so that a file beside a kernel shadows no installed module.

    Args:
        spec: a registered name such as `bundled`, an entry point of the group `flashverify.subjects`, `module:name`, or
            `file.py:name`.

    Returns:
        The subject.

    Raises:
        SubjectLoadError: nothing of that name, the import fails, or the object is no subject.
    """
    from flashverify.subjects.finding import require_findable
    from flashverify.subjects.sources import enter_sources, require_own_sources

    enter_sources()
    require_findable(spec)
    from flashverify.subjects.interface import Subject

    module_name, _, attribute = target_of(spec).partition(":")
    subject = _resolve(spec, module_name, attribute)
    require_own_sources(spec)
    if not isinstance(subject, Subject):
        raise SubjectLoadError(
            f"subject {spec!r} is a {type(subject).__name__}, not a subject: decorate the function with @flashverify.subject"
        )
    return subject


def _resolve(spec: str, module_name: str, attribute: str) -> object:
    path = Path(module_name).resolve() if module_name.endswith(".py") else None
    directory = os.getcwd() if path is None else str(path.parent)
    if directory not in sys.path:
        sys.path.append(directory)
    try:
        value: object = importlib.import_module(module_name) if path is None else module_of_file(path)
        for part in attribute.split("."):
            value = getattr(value, part)
    except ImportError as error:
        raise SubjectLoadError(f"subject {spec!r} cannot be imported: {error}") from error
    except AttributeError as error:
        raise SubjectLoadError(f"subject {spec!r}: {error}") from error
    except FlashverifyError:
        raise
    except Exception as error:
        from flashverify.subjects.unknown_field import advice_on_field

        kind, frames = type(error).__name__, traceback.extract_tb(error.__traceback__)
        frame = next(x for x in reversed(frames) if not {"torch", "triton"} & set(Path(x.filename).parts))
        text = f"subject {spec!r} cannot be imported: {kind}: {error} ({frame.filename}:{frame.lineno})"
        advice = PRETEND if inability_of(kind, str(error)) is NO_GPU else advice_on_field(str(error))
        raise SubjectLoadError(f"{text}{advice}") from error
    return value
