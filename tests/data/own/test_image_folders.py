import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from holdfast.data import read
from holdfast.data.own.image_folders import image_paths
from holdfast.errors import DataError
from tests.data.own.wards import source


def picture(path, value=0, side=8):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((side, side, 3), value, np.uint8)).save(path)
    return path


@pytest.fixture
def photos(tmp_path):
    for label, value in (("cat", 10), ("dog", 200)):
        for number in range(6):
            picture(tmp_path / "photos" / label / f"{number}.png", value + number)
    return tmp_path / "photos"


def parts_of(splits):
    return splits.train, splits.validation, splits.test


def test_folders_are_classes_and_every_image_is_in_one_part(photos):
    splits = read(photos)
    assert splits.train.class_names == ("cat", "dog") and splits.train.input_shape == (3, 8, 8)
    names = [name for part in parts_of(splits) for name in part.names]
    assert sorted(names) == sorted(str(path.relative_to(photos)) for path in photos.rglob("*.png"))
    for part in parts_of(splits):
        for label, name in zip(part.labels.tolist(), part.names, strict=True):
            assert name.startswith(part.class_names[label])


def test_an_image_is_its_pixels(photos):
    train = read(photos).train
    inputs, _ = train.gather(torch.arange(len(train)))
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    for pixels, name in zip(inputs, train.names, strict=True):
        value = (10 if name.startswith("cat") else 200) + int(name[-5])
        torch.testing.assert_close(pixels, ((value / 255 - mean) / std).expand(3, 8, 8), atol=1e-4, rtol=1e-4)


def test_images_are_the_same_whether_held_in_memory_or_not(photos):
    held, lazy = read(photos, in_memory="yes").train, read(photos, in_memory="no").train
    rows = torch.arange(len(held))
    torch.testing.assert_close(held.gather(rows)[0], lazy.gather(rows)[0])


def test_folders_of_parts_are_these_parts(tmp_path):
    for part, count in (("train", 4), ("valid", 2), ("test", 3)):
        for label in ("a", "b"):
            for number in range(count):
                picture(tmp_path / "x" / part / label / f"{number}.png")
    assert [len(part) for part in parts_of(read(tmp_path / "x"))] == [8, 4, 6]


def test_what_systems_leave_behind_is_no_image_and_links_are_followed(photos):
    (photos / "cat" / "._0.png").write_bytes(b"x")
    (photos / "cat" / ".DS_Store").write_bytes(b"x")
    (photos / ".hidden").mkdir()
    (photos / "cat" / "link.png").symlink_to(photos / "cat" / "0.png")
    assert sum(map(len, parts_of(read(photos)))) == 13


def test_files_that_are_no_images_by_their_names_are_told(photos):
    for name in ("7.heic", "Thumbs.db", ".hidden"):
        (photos / "cat" / name).write_bytes(b"?")
    told = [note for note in read(photos).notes if note.startswith("left out")]
    assert len(told) == 1 and "1 file not named like images" in told[0] and "7.heic" in told[0]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda p: picture(p / "lost.png"), "images beside its class folders .lost.png."),
        (lambda p: (p / "cow").mkdir(), "class folder .*cow has no images"),
        (lambda p: picture(p / "train" / "x.png"), "after parts of the data .train. and others .cat, dog."),
        (lambda p: (p / "cat" / "0.png").write_bytes(b"no image"), "1 image of .* can't be used: row 1: .*0.png"),
        (lambda p: (p / "cat" / "0.png").write_bytes(b""), "it is empty"),
        (lambda p: (p / "cat" / "gone.png").symlink_to(p / "nowhere"), "gone.png"),
        (lambda p: [f.unlink() for f in (p / "dog").iterdir()] and (p / "dog").rmdir(), "one value only, 'cat'"),
        (lambda p: (p / "cat" / "1.png").write_bytes((p / "cat" / "1.png").read_bytes()[:45]), "row 2: .*1.png"),
    ],
)  # fmt: skip
def test_a_broken_folder_is_a_sentence(photos, spoil, says):
    spoil(photos)
    with pytest.raises(DataError, match=says) as raised:
        read(photos)
    assert len(str(raised.value)) < 700


def test_a_thousand_broken_images_are_a_short_sentence(photos):
    for number in range(1_000):
        (photos / "cat" / f"bad-{number}.png").write_bytes(b"x")
    with pytest.raises(DataError, match=r"1,000 images .* \(and 997 more\)") as raised:
        read(photos)
    assert len(str(raised.value)) < 1_200


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_a_sentence(photos):
    photos.chmod(0)
    try:
        with pytest.raises(DataError, match="permission"):
            read(photos)
    finally:
        photos.chmod(0o755)


@given(
    st.text(max_size=12) | st.sampled_from(["../x.png", "/etc/passwd", "a/../../x", "a/../b.png", "./a.png", "..", ""])
)
def test_no_path_leaves_the_folder(tmp_path_factory, name):
    root = str(tmp_path_factory.getbasetemp())
    where = source({"image": ["x"]}, place=f"{root}/metadata.csv")
    try:
        (path,) = image_paths(where, "image", [name])
    except DataError as error:
        assert "row 1" in str(error)
    else:
        assert os.path.realpath(path).startswith(os.path.realpath(root) + os.sep)


def test_metadata_may_be_csv_or_parquet_and_names_the_images(photos):
    files = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.png"))
    rows = {"img_filename": files, "y": [int("dog" in file) for file in files], "place": ["land", "water"] * 6}
    pq.write_table(pa.table(rows), photos / "metadata.parquet")
    splits = read(photos)
    assert splits.train.n_groups == 4 and "image: column 'img_filename', whose values name image files" in splits.notes
    rows["img_filename"][3] = "../secret.png"
    pq.write_table(pa.table(rows), photos / "metadata.parquet")
    with pytest.raises(DataError, match=r"'../secret.png' in row 4, which is not below"):
        read(photos)
    rows["img_filename"][3] = "cat/missing.png"
    pq.write_table(pa.table(rows), photos / "metadata.parquet")
    with pytest.raises(DataError, match=r"row 4: there is no image .*missing.png"):
        read(photos)


@pytest.mark.parametrize("name", ["metadata.csv", "notes.csv"])
def test_a_table_beside_images_that_names_none_of_them_is_a_sentence(photos, name):
    rows = "".join(f"{number},{number % 3},{'ab'[number % 2]}\n" for number in range(30))
    (photos / name).write_text("number,ward,label\n" + rows)
    with pytest.raises(
        DataError, match=r"has images, and no column of its table names them .* --image, or give the path"
    ):
        read(photos)
    assert len(read(photos / name).train) > 0 and len(read(photos, features=["number", "ward"]).train) > 0


def test_images_alone_are_read_where_no_class_is_needed(photos, tmp_path):
    schema = read(photos).schema
    for number in range(3):
        picture(tmp_path / "new" / f"{number}.png")
    for place, names in ((tmp_path / "new", ["0.png", "1.png", "2.png"]), (tmp_path / "new" / "1.png", ["1.png"])):
        new = schema.read(str(place))
        assert list(new.examples.names) == names and not new.labelled
    with pytest.raises(DataError, match="nothing that says their classes; make a folder per class"):
        read(tmp_path / "new")


def _described(folder, header, rows):
    for row in rows:
        picture(folder / row.split(",")[0])
    (folder / "metadata.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder


def test_a_split_is_known_by_its_values_whatever_its_column_is_called(tmp_path):
    rows = [f"{i}.png,{'ab'[i % 2]},{'Train' if i < 12 else 'test'}" for i in range(20)]
    found = read(_described(tmp_path / "x", "file,what,teil", rows), label="what")
    assert len(parts_of(found)[2]) == 8
    assert any("split: column 'teil', whose values name parts" in note for note in found.notes)
    assert len(parts_of(read(tmp_path / "x", label="what", split="none"))[2]) != 8


def test_a_metadata_table_does_not_undo_the_folders_that_are_the_split(tmp_path):
    rows = [f"{'train' if i < 12 else 'test'}/{'ab'[i % 2]}/{i}.png,{'ab'[i % 2]}" for i in range(20)]
    found = read(_described(tmp_path / "x", "file,what", rows), label="what")
    assert len(parts_of(found)[2]) == 8
    assert any("split: by the folders that 'file' begins with" in note for note in found.notes)
    assert len(parts_of(read(tmp_path / "x", label="what", split="none"))[2]) != 8


def test_a_word_that_is_no_part_leaves_a_column_what_it_is(tmp_path):
    rows = [f"{i}.png,{'ab'[i % 2]},{('train', 'test', 'bus')[i % 3]}" for i in range(20)]
    found = read(_described(tmp_path / "x", "file,what,vehicle", rows), label="what")
    assert any(note.startswith("split: made") for note in found.notes)


def test_class_folders_beside_a_table_that_describes_the_images_are_told_to_be_unread(tmp_path):
    rows = [f"a/{i}.png,{'ab'[i % 2]}" for i in range(6)]
    with pytest.raises(DataError, match="the table that describes its images is read, and class folders are not"):
        read(_described(tmp_path / "x", "file,what", rows))
