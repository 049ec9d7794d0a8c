import dataclasses
import gzip
import hashlib
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from holdfast.data import DataSet, Examples, RemoteFile, Splits, check
from holdfast.data.check import check_entry, check_files
from holdfast.data.checksums import remember
from holdfast.data.inputs import LazyInputs
from holdfast.errors import DataError, MissingDependencyError

CONTENT = b"abc" * 1000
SHA = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()


def found(file: RemoteFile, root: Path, *, full: bool = False, count=lambda: "3 examples"):
    return check_files((file,), root, "run it", count, full=full)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    return tmp_path


def test_a_file_that_is_as_published_is_usable(root: Path) -> None:
    finding = found(RemoteFile("a.bin", sha256=SHA, size=3000), root)
    assert (finding.state, finding.what, finding.remedy) == ("usable", "3 examples; sums as published", "")


def test_nothing_there_says_what_to_do_and_reads_nothing(tmp_path: Path) -> None:
    finding = found(RemoteFile("a.bin", sha256=SHA), tmp_path, count=lambda: pytest.fail("was read"))
    assert (finding.state, finding.remedy) == ("absent", "run it")


def test_a_transfer_that_stopped_is_mentioned(tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(b"half")
    assert "stopped at 4 bytes of a.bin.part and goes on" in found(RemoteFile("a.bin"), tmp_path).remedy


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (RemoteFile("a.bin", sha256="0" * 64), "has the sha256 sum"),
        (RemoteFile("a.bin", md5="0" * 32), "has the md5 sum"),
        (RemoteFile("a.bin", size=7), "has 3000 bytes instead of 7"),
        (RemoteFile("a.bin", content_md5="0" * 32), "isn't what is published"),
        (RemoteFile("b.gz", also=("a.bin",), content_md5="0" * 32), "isn't what is published"),
    ],
)
def test_what_is_not_as_published_is_damaged(root: Path, file: RemoteFile, why: str) -> None:
    finding = found(file, root)
    assert finding.state == "damaged" and why in finding.what and "remove it, and run it" in finding.remedy


def test_an_empty_file_and_an_empty_folder_are_damaged(tmp_path: Path) -> None:
    (tmp_path / "a.bin").touch()
    (tmp_path / "folder").mkdir()
    for file in (RemoteFile("a.bin"), RemoteFile("folder"), RemoteFile("x.zip", unpacks_to="folder")):
        finding = found(file, tmp_path)
        assert finding.state == "damaged" and "is empty" in finding.what


def test_another_compression_of_the_published_content_is_whole(tmp_path: Path) -> None:
    published = RemoteFile("a.gz", sha256=SHA, size=17, content_md5=MD5, also=("a",))
    (tmp_path / "a.gz").write_bytes(gzip.compress(CONTENT, 1))
    assert found(published, tmp_path).what.endswith("content as published")
    (tmp_path / "a.gz").rename(tmp_path / "b.gz")
    (tmp_path / "a").write_bytes(CONTENT)
    assert found(published, tmp_path).what.endswith("content as published")
    (tmp_path / "a").write_bytes(CONTENT[:-1] + b"x")
    assert found(published, tmp_path).state == "damaged"
    (tmp_path / "b.gz").rename(tmp_path / "a.gz")
    (tmp_path / "a.gz").write_bytes((tmp_path / "a.gz").read_bytes()[:-9])
    assert "damaged gzip" in found(published, tmp_path).what


def test_a_file_without_a_published_sum_is_compared_with_what_came_first(root: Path) -> None:
    file = RemoteFile("a.bin", "https://example.org/a.bin", unchecked="nobody says")
    assert found(file, root).what.endswith("no sums known: nobody says")
    remember(root / "a.bin")
    assert found(file, root).what.endswith("sums as they came")
    (root / "a.bin").write_bytes(CONTENT[:-1] + b"x")
    assert found(file, root).state == "damaged"


def unpacked(root: Path, n: int) -> RemoteFile:
    for number in range(n):
        path = root / "birds" / f"{number:03}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(number))
    remember(root / "birds")
    return RemoteFile("birds.tar", unpacks_to="birds")


def test_a_file_that_a_folder_lost_is_found_without_reading_all(tmp_path: Path) -> None:
    file = unpacked(tmp_path, 100)
    assert found(file, tmp_path).what.endswith("32 of 100 sums as they came")
    assert found(file, tmp_path, full=True).what.endswith("; sums as they came")
    (tmp_path / "birds/041.png").unlink()
    (tmp_path / "birds/043.png").unlink()
    finding = found(file, tmp_path)
    assert finding.state == "damaged" and "041.png (and 1 more) isn't there any more" in finding.what


def test_a_changed_file_of_a_folder_is_found_in_full_and_the_first_and_last_always(tmp_path: Path) -> None:
    file = unpacked(tmp_path, 100)
    for name, sampled in (("000.png", True), ("099.png", True), ("002.png", False)):
        path = tmp_path / "birds" / name
        whole = path.read_text()
        path.write_text("changed")
        assert (found(file, tmp_path).state == "damaged") is sampled
        assert found(file, tmp_path, full=True).state == "damaged"
        path.write_text(whole)
    assert found(file, tmp_path, full=True).state == "usable"


def test_a_large_file_is_read_in_full_only(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_LARGE", 100)
    file = RemoteFile("a.bin", sha256="0" * 64, size=3000)
    assert "not compared (--full does)" in found(file, root).what
    assert found(file, root, full=True).state == "damaged"
    assert found(RemoteFile("a.bin", sha256=SHA, size=9), root).state == "damaged"


def test_what_can_not_be_read_is_damaged_and_what_needs_a_package_unknown(root: Path) -> None:
    def broken() -> str:
        raise DataError("line 3 is no pair")

    def lacking() -> str:
        raise MissingDependencyError("needs h5py; pip install it")

    assert found(RemoteFile("a.bin"), root, count=broken).what == "line 3 is no pair"
    assert found(RemoteFile("a.bin"), root, count=broken).state == "damaged"
    finding = found(RemoteFile("a.bin"), root, count=lacking)
    assert (finding.state, finding.remedy) == ("unknown", "needs h5py; pip install it")


def test_a_part_of_the_files_is_incomplete_unless_one_of_them_is_damaged(root: Path) -> None:
    files = RemoteFile("a.bin", sha256=SHA), RemoteFile("b.bin")
    finding = check_files(files, root, "run it", lambda: pytest.fail("was read"))
    assert (finding.state, finding.what, finding.remedy) == ("incomplete", "no b.bin", "run it")
    (root / "a.bin").write_bytes(b"x")
    assert check_files(files, root, "run it", lambda: "").state == "damaged"


def test_a_record_that_is_none_is_damage(root: Path) -> None:
    (root / "a.bin.sha256").write_text("nonsense\n")
    finding = found(RemoteFile("a.bin"), root)
    assert finding.state == "damaged" and "isn't a record of SHA-256 checksums" in finding.what


def test_a_reader_that_stumbles_is_told_in_a_line(root: Path) -> None:
    def stumbles() -> str:
        raise IndexError("list index\nout of range" * 100)

    finding = found(RemoteFile("a.bin"), root, count=stumbles)
    assert finding.state == "damaged" and finding.what.startswith("it can't be read (IndexError: list index out of")
    assert len(finding.what) < 250 and "\n" not in finding.what


def test_an_archive_that_is_not_unpacked_is_checked_and_named(root: Path) -> None:
    finding = found(RemoteFile("a.bin", sha256=SHA, unpacks_to="folder"), root)
    assert (finding.state, finding.what, finding.remedy) == ("incomplete", "a.bin isn't unpacked yet", "run it")
    assert found(RemoteFile("a.bin", sha256="0" * 64, unpacks_to="folder"), root).state == "damaged"


class Pictures:
    """Which inputs were opened, and which can't be."""

    opened: ClassVar[set[int]] = set()
    broken: ClassVar[set[int]] = set()


@dataclasses.dataclass(frozen=True)
class Lazy(DataSet):
    """Pictures that are opened when they are gathered."""

    name = "lazy"
    summary = "pictures"
    files = (RemoteFile("a.bin", sha256=SHA),)

    def load(self, root: Path) -> Splits:
        def read(position: int) -> torch.Tensor:
            Pictures.opened.add(position)
            if position in Pictures.broken:
                raise DataError(f"picture {position} can't be decoded")
            return torch.zeros(1)

        def part(first: int) -> Examples:
            return Examples.of(LazyInputs(read, 200), [0, 1] * 100, ids=torch.arange(200) + first)

        return Splits("lazy", part(0), part(200), part(400))


@pytest.mark.parametrize(("full", "expected"), [(False, 32), (True, 200)])
def test_a_sample_of_the_images_is_opened_or_all(root: Path, full: bool, expected: int) -> None:
    Pictures.opened, Pictures.broken = set(), set()
    assert check_entry(Lazy, root, full=full).what == "200 + 200 + 200 examples; sums as published"
    assert len(Pictures.opened) == expected and {0, 199} <= Pictures.opened
    Pictures.broken = {199}
    finding = check_entry(Lazy, root, full=full)
    assert finding.state == "damaged" and finding.what == "picture 199 can't be decoded"
    assert "holdfast data get lazy" in finding.remedy
