"""The launches of a subject, found without a process of their own."""

import functools

from flashverify.compiling.discover import Discovery, discover
from flashverify.subjects import load_subject


@functools.cache
def launches_of(spec: str) -> Discovery:
    return discover(load_subject(spec))
