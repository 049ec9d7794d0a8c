from pathlib import Path

import pytest

from holdfast.data.readers.image_tree import image_files
from holdfast.errors import DataError
from tests.data.trees import write_image


def test_images_are_listed_by_name_and_other_files_and_folders_are_not(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPEG", "inner/c.png"):
        write_image(tmp_path / name)
    (tmp_path / "list.txt").write_text("a.JPEG")
    assert image_files(tmp_path) == [tmp_path / "a.JPEG", tmp_path / "b.png"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no folder .*/cars; complete"):
        image_files(tmp_path / "cars")
