from pathlib import Path

import pytest
import torch

from holdfast.data import load
from holdfast.data.sets.images.celeba import CELEBA_COUNTS
from holdfast.errors import DataError
from tests.data.trees import write_csv, write_image

#: image, Blond_Hair, Male, partition
ROWS = [("1.jpg", -1, 1, 0), ("2.jpg", 1, -1, 0), ("3.jpg", 1, 1, 1), ("4.jpg", -1, -1, 2), ("5.jpg", -1, -1, 0)]
HEADER = ["Bald", "Blond_Hair", "Male"]


def write_tables(root: Path, form: str, *, backwards: bool = False) -> None:
    attributes: list[list[object]] = [[image, -1, blond, male] for image, blond, male, _ in ROWS]
    partition: list[list[object]] = [[row[0], row[3]] for row in (ROWS[::-1] if backwards else ROWS)]
    folder = root / "celeba"
    if form == "csv":
        write_csv(folder / "list_attr_celeba.csv", ["image_id", *HEADER], attributes)
        write_csv(folder / "list_eval_partition.csv", ["image_id", "partition"], partition)
        return
    folder.mkdir(parents=True)
    lines = [str(len(ROWS)), " ".join(HEADER), *("  ".join(map(str, row)) for row in attributes)]
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    (folder / "list_eval_partition.txt").write_text("".join(f"{a} {b}\n" for a, b in partition))


@pytest.mark.parametrize("form", ["csv", "txt"])
@pytest.mark.parametrize("backwards", [False, True])
def test_hair_and_gender_are_read_from_either_form_in_any_order(tmp_path: Path, form: str, backwards: bool) -> None:
    write_tables(tmp_path, form, backwards=backwards)
    splits = load("celeba", tmp_path, check_counts=False)
    assert splits.train.ids.tolist() == [0, 1, 4]
    assert splits.train.labels.tolist() == [0, 1, 0]
    assert splits.train.groups is not None and splits.train.groups.tolist() == [1, 2, 0]
    assert splits.train.group_names == ("dark/female", "dark/male", "blond/female", "blond/male")
    assert splits.validation.ids.tolist() == [2] and splits.test.ids.tolist() == [3]


def test_faces_are_cropped_then_resized(tmp_path: Path) -> None:
    write_tables(tmp_path, "csv")
    for image, *_ in ROWS:
        write_image(tmp_path / "celeba/img_align_celeba" / image, 178, 218)
    splits = load("celeba", tmp_path, check_counts=False, size=20)
    assert splits.train.gather(torch.tensor([2, 1]))[0].shape == (2, 3, 20, 20)


def test_other_counts_than_the_published_are_refused(tmp_path: Path) -> None:
    write_tables(tmp_path, "csv")
    assert sum(map(sum, CELEBA_COUNTS.values())) == 202_599
    with pytest.raises(DataError, match="published are 71629"):
        load("celeba", tmp_path)


def test_damaged_tables_are_named(tmp_path: Path) -> None:
    write_tables(tmp_path, "txt")
    path = tmp_path / "celeba/list_attr_celeba.txt"
    whole = path.read_text()
    path.write_text(whole.replace("Blond_Hair", "Blonde_Hair"))
    with pytest.raises(DataError, match="no attribute 'Blond_Hair'; did you mean 'Blonde_Hair'"):
        load("celeba", tmp_path, check_counts=False)
    path.write_text(whole[:-3])
    with pytest.raises(DataError, match=r"line 7 of .* has 3 words instead of 4"):
        load("celeba", tmp_path, check_counts=False)
    path.write_text(whole.replace("2.jpg  -1  1", "2.jpg  -1  7"))
    with pytest.raises(DataError, match=r"'7' as Blond_Hair of 2\.jpg"):
        load("celeba", tmp_path, check_counts=False)
    path.write_text(whole + "9.jpg -1 -1 -1\n")
    with pytest.raises(DataError, match=r"no split for 9\.jpg"):
        load("celeba", tmp_path, check_counts=False)
