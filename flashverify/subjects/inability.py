"""Exceptions that say nothing about a kernel: it cannot run on this machine, or it has no backward."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FORWARD_ONLY", "NO_GPU", "PRETEND", "Inability", "inability_of", "not_differentiable"]


@dataclass(frozen=True, slots=True)
class Inability:
    """Why a subject cannot run.

    Attributes:
        reason: what it lacks, after "the subject could not run: ".
        advice: what to do about it.
        texts: parts of the messages of such exceptions.
        kinds: names of exceptions that are of this kind whatever they say.
    """

    reason: str
    advice: str
    texts: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


PRETEND = ". Import it inside `with flashverify.pretend_cuda((9, 0)):`, and declare @subject(pretend_cuda=(9, 0))"
"""What helps a file that asks for a GPU while it is imported."""
NO_GPU = Inability(
    reason="it needs a GPU, and there is none that it can use",
    advice="Run it on a machine with a GPU. Triton kernels need none: with --device cpu they run in Triton's interpreter, if the "
    "subject hands them CPU tensors and asks no driver; @subject(pretend_cuda=(9, 0)) answers code that does ask.",
    texts=(
        "0 active drivers",
        "not compiled with CUDA",
        "no NVIDIA driver",
        "No CUDA GPUs are available",
        "no CUDA-capable device",
        "CUDA driver version is insufficient",
        "no kernel image is available",
        "libcuda.so cannot found",
        "cannot be accessed from Triton (cpu tensor?)",
    ),
)
NO_PACKAGE = Inability(
    reason="it imports what is not installed",
    advice="Install it into the environment that runs flashverify.",
    kinds=("ModuleNotFoundError", "ImportError"),
)
FORWARD_ONLY = Inability(
    reason="it has no backward, and does not say so",
    advice="Declare supports=Supports(backward=False), or return an O that autograd can differentiate.",
    texts=(
        "autograd cannot differentiate",
        "element 0 of tensors does not require grad",
        "no autograd formula was registered",
    ),
)
_ALL = (NO_GPU, NO_PACKAGE, FORWARD_ONLY)


def inability_of(kind: str, message: str) -> Inability | None:
    """What an exception says a subject lacks; None where it says something about the kernel.

    Args:
        kind: name of its class.
        message: its text.
    """
    return next((each for each in _ALL if kind in each.kinds or any(text in message for text in each.texts)), None)


def not_differentiable(name: str) -> str:
    """The message about a subject that returned an O without a gradient where a case has a backward."""
    return f"subject {name!r} returned an O that autograd cannot differentiate. {FORWARD_ONLY.advice}"
