from collections.abc import Iterator

import pytest

from holdfast.primitives.threads import torch_threads


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Models of a test are so small that a second thread only waits."""
    with torch_threads(1):
        yield
