import logging
from pathlib import Path

import pytest
import torch

from holdfast.data import describe, load
from holdfast.data.readers.folder import WATERBIRDS_COUNTS, MetadataColumns
from holdfast.errors import DataError
from tests.data.trees import BIRD_HEADER, bird_rows, write_csv, write_image

SMALL = {"train": (4, 2, 1, 3), "validation": (1, 1, 1, 1), "test": (2, 1, 1, 2)}


def write_folder(folder: Path, rows: list[list[object]] | None = None, header: list[str] = BIRD_HEADER) -> Path:
    write_csv(folder / "metadata.csv", header, bird_rows(SMALL) if rows is None else rows)
    return folder


def test_labels_groups_and_ids_are_there_without_any_image(tmp_path: Path) -> None:
    splits = load("folder", path=write_folder(tmp_path))
    assert splits.train.labels.tolist() == [0] * 6 + [1] * 4
    assert splits.train.groups is not None
    assert splits.train.groups.tolist() == [0] * 4 + [1] * 2 + [2] + [3] * 3
    assert splits.test.ids.tolist() == list(range(14, 20))
    assert describe(splits) == {
        part: dict(zip(("y0/a0", "y0/a1", "y1/a0", "y1/a1"), counts, strict=True)) for part, counts in SMALL.items()
    }


def test_images_are_gathered_in_the_wanted_size(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    for number in range(20):
        write_image(folder / f"{number:03}.png", seed=number)
    splits = load("folder", path=folder, size=7)
    batch, labels = splits.test.gather(torch.tensor([5, 0]))
    assert batch.shape == (2, 3, 7, 7)
    assert labels.tolist() == [1, 0]
    threaded = load("folder", path=folder, size=7, workers=0).test.gather(torch.tensor([5, 0]))[0]
    assert torch.equal(batch, threaded)


def test_splits_may_be_words_and_columns_may_have_other_names(tmp_path: Path) -> None:
    rows = [["a.png", 0, "train", 1], ["b.png", 1, "val", 0], ["c.png", 1, "Test", 0], ["d.png", 1, "train", 0]]
    folder = write_folder(tmp_path, rows, ["file", "kind", "part", "where"])
    splits = load("folder", path=folder, columns=MetadataColumns("file", "kind", "part", "where"))
    assert splits.train.ids.tolist() == [0, 3]
    assert splits.validation.ids.tolist() == [1]
    without = load("folder", path=folder, columns=MetadataColumns("file", "kind", "part", None))
    assert without.train.groups is None and without.train.attributes is None
    assert describe(without)["train"] == {"y0": 1, "y1": 1}


def test_a_missing_column_is_named_with_those_there_are(tmp_path: Path) -> None:
    write_folder(tmp_path, [["a.png", 0, 0, 0]], ["img_filename", "y", "split", "places"])
    with pytest.raises(
        DataError, match="no column 'place'; it has img_filename, y, split, places; did you mean 'places'"
    ):
        load("folder", path=tmp_path)


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        ({"y": "bird"}, {}, "'bird' in column 'y' of row 3; it must be an integer from 0"),
        ({"y": "0.5"}, {}, r"'0\.5' in column 'y' of row 3"),
        ({"y": ""}, {}, "'' in column 'y' of row 3"),
        ({"y": -1}, {}, "'-1' in column 'y' of row 3"),
        ({"y": 2}, {"class_names": ("land", "water")}, "'2' in column 'y' of row 3; it must be an integer from 0 to 1"),
        ({"place": "x"}, {}, "'x' in column 'place' of row 3"),
        ({"split": 3}, {}, "'3' in column 'split' of row 3; give 0, 1, 2"),
    ],
)
def test_a_wrong_value_is_named_by_its_row(tmp_path: Path, row: dict, options: dict, message: str) -> None:
    rows = bird_rows(SMALL)
    for column, value in row.items():
        rows[2][BIRD_HEADER.index(column)] = value
    with pytest.raises(DataError, match=message):
        load("folder", path=write_folder(tmp_path, rows), **options)


@pytest.mark.parametrize(("split", "word"), [(0, "train"), (1, "val"), (2, "test")])
def test_an_empty_part_is_an_error(tmp_path: Path, split: int, word: str) -> None:
    rows = [row for row in bird_rows(SMALL) if row[3] != split]
    with pytest.raises(DataError, match=f"no row whose 'split' is {word}"):
        load("folder", path=write_folder(tmp_path, rows))


def test_an_empty_training_group_is_allowed_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    counts = SMALL | {"train": (4, 2, 0, 3)}
    with caplog.at_level(logging.WARNING, "holdfast.data"):
        splits = load("folder", path=write_folder(tmp_path, bird_rows(counts)))
    assert describe(splits)["train"]["y1/a0"] == 0
    assert "no training example of y1/a0" in caplog.text


def test_a_file_that_is_no_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file .*metadata\.csv; it must say"):
        load("folder", path=tmp_path)
    write_folder(tmp_path, [])
    with pytest.raises(DataError, match=r"metadata\.csv has no rows"):
        load("folder", path=tmp_path)
    write_folder(tmp_path, [["1", "2"]])
    with pytest.raises(DataError, match=r"metadata\.csv can't be read as csv"):
        load("folder", path=tmp_path)


@pytest.mark.parametrize("folder", ["waterbird_complete95_forest2water2", "waterbirds_v1.0"])
def test_waterbirds_has_the_published_counts_and_names(tmp_path: Path, folder: str) -> None:
    write_folder(tmp_path / folder, bird_rows(WATERBIRDS_COUNTS))
    splits = load("waterbirds", tmp_path)
    assert [len(splits.train), len(splits.validation), len(splits.test)] == [4795, 1199, 5794]
    assert splits.train.group_counts().tolist() == [3498, 184, 56, 1057]
    assert splits.train.group_names == ("landbird/land", "landbird/water", "waterbird/land", "waterbird/water")


def test_waterbirds_with_other_counts_is_refused_unless_asked_for(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "waterbird_complete95_forest2water2")
    with pytest.raises(DataError, match="has 4 train examples of landbird/land, published are 3498"):
        load("waterbirds", tmp_path)
    splits = load("waterbirds", tmp_path, check_counts=False)
    for number in range(20):
        write_image(folder / f"{number:03}.png", 40, 30)
    assert splits.train.gather(torch.tensor([0, 9]))[0].shape == (2, 3, 224, 224)
