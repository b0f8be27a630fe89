"""Streams and CUDA graphs where launches only compile: there is nothing to order and nothing to replay."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from unittest import mock

from flashverify.launching.pretended_torch import PretendedStream

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["pretended_streams"]


class _Graph:
    """A graph that nothing was captured in."""

    def replay(self) -> None:
        pass


def _capture(*_args: Any, **_options: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


@contextlib.contextmanager
def pretended_streams() -> Iterator[None]:
    """Until the end of the block `torch.cuda.Stream`, `CUDAGraph` and `graph` order and record nothing: launches inside them are made at once."""
    import torch

    with mock.patch.multiple(torch.cuda, Stream=PretendedStream, CUDAGraph=_Graph, graph=_capture):
        yield
