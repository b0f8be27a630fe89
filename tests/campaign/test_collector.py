"""The garbage collector of a worker passes over what lives as long as the process, and collects everything else."""

import gc
import weakref

import pytest

from flashverify.campaign.worker.collector import settle_collector


class Node:
    """Something that can refer to itself."""


@pytest.fixture
def collector():
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("collector")
def test_only_what_was_alive_is_exempt_from_collection():
    lasting = Node()
    settle_collector()
    later = Node()
    later.itself = later
    watched = weakref.ref(later)
    del later
    gc.collect()

    assert gc.get_freeze_count() > 0
    assert not any(found is lasting for found in gc.get_objects())
    assert watched() is None
    assert gc.isenabled()
