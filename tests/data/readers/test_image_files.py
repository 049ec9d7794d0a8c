import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast.data.readers import image_files
from holdfast.data.readers.image_files import check_files, decode_all, image_memory, sample_sizes
from holdfast.data.readers.images import ImageReader
from holdfast.errors import ConfigError, DataError
from tests.data.readers.image_kinds import colours, encoded, exif, write_kinds
from tests.data.trees import write_image

READERS = [
    ImageReader(resize=16, crop=None),
    ImageReader(resize=20, crop=16),
    ImageReader(crop_first=6, resize=None, crop=None),
]


def damaged(folder: Path) -> dict[Path, str]:
    """Files that can't be used, with a part of the sentence that says so."""
    image = Image.fromarray(np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8))
    contents = {
        "empty.png": (b"", "it is empty"),
        "text.png": (b"hello", "no intact header of"),
        "cut.jpg": (encoded(image, "JPEG")[:-100], "can't be decoded"),
        "cut.png": (encoded(image, "PNG")[:-200], "can't be decoded"),
        "range.tif": (encoded(Image.fromarray(np.full((4, 4), 900, np.float32)), "TIFF"), "float values from 900"),
        "cut.tif": (encoded(image, "TIFF")[:-2000], "can't be decoded"),
    }
    for name, (content, _) in contents.items():
        (folder / name).write_bytes(content)
    return {folder / name: sentence for name, (_, sentence) in contents.items()} | {folder / "gone.png": "there is no"}


def mixed(folder: Path) -> tuple[list[Path], dict[int, str]]:
    """Good and bad files by turns, and the sentence for each bad position."""
    good, bad = write_kinds(folder), damaged(folder)
    paths, expected = [], {}
    for number, path in enumerate(good):
        paths.append(path)
        if number < len(bad):
            expected[len(paths)] = list(bad.values())[number]
            paths.append(list(bad)[number])
    return paths, expected


def assert_failures(found: list[tuple[int, str]], expected: dict[int, str], paths: list[Path]) -> None:
    assert [position for position, _ in found] == sorted(expected)
    for position, sentence in found:
        assert expected[position] in sentence and paths[position].name in sentence


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_all_images_are_what_the_reader_gives_one_by_one(reader: ImageReader, workers: int, tmp_path: Path) -> None:
    paths = write_kinds(tmp_path)
    pixels, failed = decode_all(paths, reader, workers)
    assert failed == []
    assert pixels.dtype == torch.uint8 and pixels.is_contiguous()
    assert torch.equal(pixels, torch.from_numpy(np.stack([reader.pixels(path) for path in paths])))
    assert pixels.numel() == image_memory(len(paths), reader.side)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_file_that_fails_is_collected_and_left_black(workers: int, tmp_path: Path) -> None:
    paths, expected = mixed(tmp_path)
    pixels, failed = decode_all(paths, READERS[0], workers)
    assert_failures(failed, expected, paths)
    sums = pixels.flatten(1).sum(1)
    assert (sums[list(expected)] == 0).all()
    assert (sums[[at for at in range(len(paths)) if at not in expected]] > 0).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_the_quick_check_finds_the_same_files(workers: int, tmp_path: Path) -> None:
    paths, expected = mixed(tmp_path)
    assert_failures(check_files(paths, workers), expected, paths)


def test_the_quick_check_decodes_only_files_without_their_end(tmp_path: Path, monkeypatch) -> None:
    image = Image.fromarray(colours(width=32, height=32))
    whole = {kind: encoded(image, kind) for kind in ("JPEG", "PNG")}
    for kind, content in whole.items():
        (tmp_path / f"whole.{kind}").write_bytes(content)
        (tmp_path / f"padded.{kind}").write_bytes(content + bytes(20))
        (tmp_path / f"followed.{kind}").write_bytes(content + b"a note of the camera")
    (tmp_path / "wide.png").write_bytes(encoded(Image.fromarray(np.full((4, 4), 9, np.uint16)), "PNG"))
    decoded = []
    monkeypatch.setattr(image_files, "decode", lambda path: decoded.append(path.name))
    assert check_files(sorted(tmp_path.iterdir()), 0) == []
    assert decoded == ["followed.JPEG", "followed.PNG"]


def test_a_thumbnail_does_not_pass_for_the_end_of_a_photograph(tmp_path: Path) -> None:
    small = encoded(Image.fromarray(colours()), "JPEG")
    large = Image.fromarray(np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8))
    content = encoded(large, "JPEG", comment=small)
    end = content.index(small) + len(small)
    assert end < len(content) - 1000
    (tmp_path / "a.jpg").write_bytes(content[: end + 900])
    assert len(check_files([tmp_path / "a.jpg"], 0)) == 1


def test_progress_counts_up_to_all_files_in_the_calling_thread(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png")
    calls = []
    decode_all([tmp_path / "a.png"] * 50, READERS[0], 2, lambda done: calls.append((done, threading.get_ident())))
    done = [number for number, _ in calls]
    assert done == sorted(set(done)) and done[-1] == 50 and len(done) > 2
    assert {thread for _, thread in calls} == {threading.get_ident()}


def test_what_was_not_begun_is_dropped_when_the_caller_stops(tmp_path: Path, monkeypatch) -> None:
    write_image(tmp_path / "a.png")
    seen = []
    monkeypatch.setattr(image_files, "_check", seen.append)

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    n = 100_000
    with pytest.raises(KeyboardInterrupt):
        check_files([tmp_path / "a.png"] * n, 2, stop)
    assert len(seen) < n


def test_no_files_are_no_images() -> None:
    pixels, failed = decode_all([], READERS[0], 2)
    assert pixels.shape == (0, 3, 16, 16) and failed == []
    assert check_files([], 2) == [] and sample_sizes([]) == []


def test_pillows_warnings_are_left_to_our_sentences(tmp_path: Path) -> None:
    Image.new("1", (10_000, 9_000)).save(tmp_path / "large.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, failed = decode_all([tmp_path / "large.png"], READERS[0], 1)
        assert "has 10000 x 9000 pixels, more than" in failed[0][1]
        assert "has 10000 x 9000 pixels" in check_files([tmp_path / "large.png"], 1)[0][1]
        assert sample_sizes([tmp_path / "large.png"]) == []


def test_sizes_are_upright_and_evenly_spaced(tmp_path: Path) -> None:
    paths = [tmp_path / f"{width}.png" for width in range(1, 12)]
    for width, path in enumerate(paths, start=1):
        write_image(path, width, 5)
    assert sample_sizes(paths) == [(width, 5) for width in range(1, 12)]
    assert sample_sizes(paths, 3) == [(1, 5), (6, 5), (11, 5)]
    image = Image.fromarray(colours(width=9, height=4))
    for kind in ("PNG", "JPEG", "TIFF", "WEBP"):
        (tmp_path / kind).write_bytes(encoded(image, kind, exif=exif(6)))
        assert sample_sizes([tmp_path / kind, tmp_path / "gone.png"]) == [(4, 9)]


def test_images_of_their_own_sizes_or_too_many_are_refused_before_work() -> None:
    with pytest.raises(ConfigError, match="give the reader a resize or a crop"):
        decode_all([], ImageReader(resize=None, crop=None), 0)

    class Many(list):
        def __len__(self) -> int:
            return 2**40

    with pytest.raises(DataError, match=r"1,099,511,627,776 images of 224 x 224 pixels need .* GiB of memory"):
        decode_all(Many(), ImageReader(), 0)
