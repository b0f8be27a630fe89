"""Which calls go through PyTorch's dispatcher, and the operators that they go to (`library` registers them)."""

import torch

NAMESPACE = __name__.split(".")[0].removesuffix("_kernels")
"""Of the operators; a copy of this package under another name has its own."""

ops = getattr(torch.ops, NAMESPACE)

_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))


def dispatched(*tensors: torch.Tensor) -> bool:
    """Whether a call has to be seen as an operator: it is being compiled or exported, or has tensors that are no plain ones.

    Everything else is launched directly: an operator with autograd takes the CPU about 150 microseconds longer.
    """
    if torch.compiler.is_compiling():
        return True
    return not _PLAIN.issuperset(map(type, tensors)) and any(
        type(x) not in _PLAIN and isinstance(x, torch.Tensor) for x in tensors
    )


def symbolic(*values: object) -> bool:
    """Whether a size among tensors, lists of numbers and numbers is not known yet."""
    return any(
        symbolic(*value.shape)
        if isinstance(value, torch.Tensor)
        else symbolic(*value)
        if isinstance(value, (list, tuple))
        else isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
        for value in values
    )
