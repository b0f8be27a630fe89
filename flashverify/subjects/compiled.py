"""Functions that torch compiled, as subjects: the compiled code is what runs, whatever the shapes, and its graph what is differentiated."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["any_number_of_shapes", "differentiated", "graph_is_spent"]

_MOST_RECOMPILATIONS = 1 << 16
_LIMITS = ("recompile_limit", "accumulated_recompile_limit")
_REFUSED = "donated buffers"
"""In the message of torch where a compiled backward overwrites what its forward saved, and the graph was to be kept."""
_SPENT = "backward through the graph a second time"


@contextlib.contextmanager
def any_number_of_shapes() -> Iterator[None]:
    """Inside, a function that `torch.compile` made may be given any number of shapes.

    Beyond its limit of recompilations torch runs such a function uncompiled, without a word. Sizes that are equal in one case are no
    reason to compile again for another, in which they differ.
    """
    dynamo: Any = sys.modules.get("torch._dynamo.config")
    shapes: Any = sys.modules.get("torch.fx.experimental._config")
    with contextlib.ExitStack() as settings:
        if dynamo is not None:
            settings.enter_context(dynamo.patch(dict.fromkeys(_LIMITS, _MOST_RECOMPILATIONS)))
        if dynamo is not None and shapes is not None:
            settings.enter_context(shapes.patch(use_duck_shape=False))
        yield


def differentiated(backward: Callable[..., Any]) -> Any:
    """What a backward returns. Its graph is kept for another one, except where torch refuses that.

    Args:
        backward: takes `retain_graph`.
    """
    try:
        return backward(retain_graph=True)
    except RuntimeError as error:
        if _REFUSED not in str(error):
            raise
    return backward(retain_graph=False)


def graph_is_spent(error: RuntimeError) -> bool:
    """Whether a backward failed because its graph was not kept by the one before."""
    return _SPENT in str(error)
