"""Every kind of task has something that carries it out."""

from importlib import import_module
from typing import get_args

import pytest

from flashverify.campaign.protocol import CaseList, Chunk, Judge, Task
from flashverify.campaign.worker import tasks


def test_every_kind_of_task_is_carried_out():
    assert set(get_args(Task)) == {Chunk, CaseList, Judge, *tasks._MODULES}


@pytest.mark.parametrize(("module", "function"), tasks._MODULES.values())
def test_the_function_of_a_kind_of_task_exists(module, function):
    assert callable(getattr(import_module(f"flashverify.campaign.worker.{module}"), function))
