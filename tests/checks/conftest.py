import pytest

from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.subjects import has_gpu


@pytest.fixture(scope="module")
def interpreter():
    if has_gpu():
        pytest.skip("kernels are compiled in this process")
    with toolkit.open("cpu", plain=False):
        yield
