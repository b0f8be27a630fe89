"""A kernel that was rehearsed without a GPU is the one that a launch on a GPU asks for: it is in the cache, under the same hash."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flashverify.child_process import child_environment

SCRIPT = Path(__file__).with_name("rehearsed_in_a_process.py")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    cache = tmp_path_factory.mktemp("kernels")
    environment = child_environment(interpret=False) | {"TRITON_CACHE_DIR": str(cache)}
    done = subprocess.run((sys.executable, str(SCRIPT)), env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_launch_finds_what_was_rehearsed(found):
    assert found["rehearsed"] == {"launches": 9, "compiled": 4}
    assert found["launched"] == {"stored": 4, "compiled": 0, "hashes": found["hashes"]}


@pytest.mark.slow
def test_sizes_of_one_class_share_a_kernel_and_the_others_do_not(found):
    assert len(set(found["hashes"])) == 4


@pytest.mark.slow
def test_a_launch_of_another_kernel_is_refused_where_only_compiled_ones_may_run(found):
    assert found["refused"] == ["NotCompiled", "NotCompiled"]
    assert found["allowed"] == "launched"


@pytest.mark.slow
def test_every_configuration_of_an_autotuned_kernel_is_compiled(found):
    assert found["tuned"] == {"launches": 3, "compiled": 2}  # one of the three does not compile
