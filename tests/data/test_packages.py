from pathlib import Path

import pytest

import holdfast
from holdfast.data.packages import packaged_folder
from holdfast.errors import MissingDependencyError


def test_the_folder_of_a_package_is_found_without_importing_it():
    assert packaged_folder("holdfast", "install it") == Path(holdfast.__file__).parent


@pytest.mark.parametrize("module", ["no_such_package", "this"])
def test_what_is_no_package_is_named_with_the_remedy(module: str):
    with pytest.raises(MissingDependencyError, match="pip install it"):
        packaged_folder(module, "pip install it")
