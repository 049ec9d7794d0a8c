import bz2
import gzip
import hashlib
import io
import lzma
import random
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.data import archives
from holdfast.data.archives import content_sum, read_gzip, unpack, zip_contents
from holdfast.errors import DataError
from tests.data.archive_files import archive, zipped

TREE = {"birds/metadata.csv": b"y\n1\n", "birds/a/b.png": bytes(range(256)), "other/c.txt": b"c"}
MEGABYTE = bytes(2**20)


def files_in(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["../outside.txt", "birds/../../outside.txt"])
def test_a_member_outside_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "birds.tar.gz").write_bytes(archive({"birds/a.txt": b"a", name: b"evil"}))
    with pytest.raises(DataError, match="outside"):
        unpack(root / "birds.tar.gz", root / "birds")
    assert files_in(tmp_path) == ["root/birds.tar.gz"]


def test_a_link_that_leads_outside_is_refused(tmp_path: Path) -> None:
    def link(info: tarfile.TarInfo) -> None:
        info.type, info.linkname = tarfile.SYMTYPE, "../../../etc"

    (tmp_path / "birds.tar.gz").write_bytes(archive({"birds/etc": b""}, link))
    with pytest.raises(DataError, match="outside"):
        unpack(tmp_path / "birds.tar.gz", tmp_path / "birds")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_link_is_refused_wherever_it_leads(tmp_path: Path, kind: bytes) -> None:
    def link(info: tarfile.TarInfo) -> None:
        info.type, info.linkname = kind, "birds/a.txt"

    (tmp_path / "birds.tar.gz").write_bytes(archive({"birds/b.txt": b""}, link))
    with pytest.raises(DataError, match=r"holds the link 'birds/b.txt'"):
        unpack(tmp_path / "birds.tar.gz", tmp_path / "birds")


def test_a_device_is_refused(tmp_path: Path) -> None:
    def device(info: tarfile.TarInfo) -> None:
        info.type = tarfile.CHRTYPE

    (tmp_path / "birds.tar.gz").write_bytes(archive({"birds/null": b""}, device))
    with pytest.raises(DataError, match="special file"):
        unpack(tmp_path / "birds.tar.gz", tmp_path / "birds")


def test_a_truncated_archive_unpacks_nothing(tmp_path: Path) -> None:
    noise = random.Random(0).randbytes(100_000)
    (tmp_path / "birds.tar.gz").write_bytes(archive({"birds/a.txt": noise, "birds/b.txt": noise})[:120_000])
    with pytest.raises(DataError, match="damaged archive"):
        unpack(tmp_path / "birds.tar.gz", tmp_path / "birds")
    assert files_in(tmp_path) == ["birds.tar.gz"]


def test_a_bomb_is_refused_before_it_fills_the_disk(tmp_path: Path) -> None:
    zeros = bytes(2**22)
    bomb = archive({f"birds/{number}.txt": zeros for number in range(5)})
    assert len(bomb) * 200 < 5 * len(zeros)
    (tmp_path / "birds.tar.gz").write_bytes(bomb)
    with pytest.raises(DataError, match=r"birds.tar.gz unpacks to more than 100 times its own size"):
        unpack(tmp_path / "birds.tar.gz", tmp_path / "birds")
    assert files_in(tmp_path) == ["birds.tar.gz"]
    (tmp_path / "birds.tar.gz").write_bytes(archive({f"birds/{number}.txt": zeros for number in range(4)}))
    assert unpack(tmp_path / "birds.tar.gz", tmp_path / "birds").is_dir()


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "birds.tar.gz").write_bytes(archive({"cats/a.txt": b"a"}))
    with pytest.raises(DataError, match="has no folder 'birds'"):
        unpack(tmp_path / "birds.tar.gz", tmp_path / "birds")


FORMS: dict[str, Callable[[], bytes]] = {
    "birds.tar": lambda: gzip.decompress(archive(TREE)),
    "birds.tar.gz": lambda: archive(TREE),
    "birds.tar.bz2": lambda: bz2.compress(gzip.decompress(archive(TREE))),
    "birds.tar.xz": lambda: lzma.compress(gzip.decompress(archive(TREE))),
    "birds.zip": lambda: zipped(TREE),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_unpacks_to_the_same_folder_and_leaves_the_rest_out(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FORMS[name]())
    assert unpack(tmp_path / name, tmp_path / "birds") == tmp_path / "birds"
    assert files_in(tmp_path / "birds") == ["a/b.png", "metadata.csv"]
    assert (tmp_path / "birds/a/b.png").read_bytes() == TREE["birds/a/b.png"]
    assert files_in(tmp_path) == [name, "birds/a/b.png", "birds/metadata.csv"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(FORMS)), data=st.data())
def test_a_damaged_archive_is_refused_in_a_sentence_or_harmless(tmp_path: Path, name: str, data: st.DataObject) -> None:
    whole = FORMS[name]()
    place = Path(tempfile.mkdtemp(dir=tmp_path))
    broken = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 4))):
        if broken:
            broken[data.draw(st.integers(0, len(broken) - 1))] ^= data.draw(st.integers(1, 255))
    (place / name).write_bytes(broken)
    try:
        unpack(place / name, place / "birds")
    except DataError as error:
        assert str(place / name) in str(error) and "\n" not in str(error)
        assert files_in(place) == [name]
    assert not list(place.glob(".unpack-*"))


def refused(tmp_path: Path, name: str, content: bytes, why: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=why):
        unpack(tmp_path / name, tmp_path / "birds")
    assert files_in(tmp_path) == [name]


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "birds.zip", zipped({f"birds/{n}": MEGABYTE for n in range(17)}), "more than 100 times")


def test_a_zip_member_gives_no_more_than_it_states(tmp_path: Path) -> None:
    honest = zipped({"birds/a": MEGABYTE})
    stated = (2**20).to_bytes(4, "little")
    assert honest.count(stated) == 2  # in the local and in the central header
    refused(tmp_path, "birds.zip", honest.replace(stated, (10).to_bytes(4, "little")), "damaged archive")


@pytest.mark.parametrize(
    "name", ["../evil.txt", "/tmp/evil.txt", "birds/../../evil.txt", "birds\\..\\evil.txt", "C:/evil.txt"]
)
def test_a_zip_member_outside_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    refused(tmp_path, "birds.zip", zipped({"birds/a.txt": b"a", name: b"evil"}), "written outside")


def test_a_link_in_a_zip_file_is_only_text(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        link = zipfile.ZipInfo("birds/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(link, "/etc/passwd")
    (tmp_path / "birds.zip").write_bytes(buffer.getvalue())
    unpack(tmp_path / "birds.zip", tmp_path / "birds")
    assert not (tmp_path / "birds/link").is_symlink()
    assert (tmp_path / "birds/link").read_text() == "/etc/passwd"


def test_a_zip_file_with_a_password_is_refused(tmp_path: Path) -> None:
    content = bytearray(zipped({"birds/a": b"a"}, zipfile.ZIP_STORED))
    for magic, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(magic) + flags] |= 1
    refused(tmp_path, "birds.zip", bytes(content), "password required")


@pytest.mark.parametrize("pack", [archive, zipped])
def test_folders_in_folders_are_bounded(tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes]) -> None:
    refused(tmp_path, "birds.bin", pack({"birds/" + "a/" * 40 + "a.txt": b"a"}), "more than 32 deep")


@pytest.mark.parametrize("pack", [archive, zipped])
def test_the_number_of_members_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[dict[str, bytes]], bytes]
) -> None:
    monkeypatch.setattr(archives, "_FEW", 20)
    monkeypatch.setattr(archives, "_BYTES_PER_MEMBER", 1000)
    content = pack({f"birds/{n}": b"" for n in range(21)})
    refused(tmp_path, "birds.bin", content, "more files than its size can describe")
    (tmp_path / "birds.bin").write_bytes(pack({f"birds/{n}": b"" for n in range(20)}))
    assert len(files_in(unpack(tmp_path / "birds.bin", tmp_path / "birds"))) == 20


def test_a_member_that_claims_more_than_there_is_takes_no_room(tmp_path: Path) -> None:
    info = tarfile.TarInfo("birds/huge")
    info.size = 2**40
    refused(tmp_path, "birds.tar.gz", gzip.compress(info.tobuf() + b"x" * 512), "more than 100 times its own size")
    info.size = 2**20
    refused(tmp_path, "birds.tar.gz", gzip.compress(info.tobuf() + b"x" * 512), "damaged archive")


def test_a_sparse_file_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("birds/sparse")
    info.size = 512
    info.pax_headers = {"GNU.sparse.map": "0,512", "GNU.sparse.size": str(2**23), "GNU.sparse.numblocks": "1"}
    content = info.tobuf(tarfile.PAX_FORMAT) + b"x" * 512 + bytes(1024)
    refused(tmp_path, "birds.tar", content, "sparse file 'birds/sparse'")


def test_a_header_of_megabytes_is_not_read(tmp_path: Path) -> None:
    info = tarfile.TarInfo("birds/a")
    info.type, info.size = tarfile.XHDTYPE, 2**23
    refused(tmp_path, "birds.tar.gz", gzip.compress(info.tobuf() + bytes(2**23)), "has a header of megabytes")


def test_many_long_headers_are_not_read(tmp_path: Path) -> None:
    info = tarfile.TarInfo("birds/a")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2**21
    one = info.tobuf() + b"a" * 2**21
    refused(tmp_path, "birds.tar.gz", gzip.compress(one * 20), "more than 100 times its own size")


def test_contents_of_a_zip_file_are_read_by_name_and_bounded(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped({"b.png": b"2", "a.png": b"1", "c.txt": b"3"}))
    assert list(zip_contents(tmp_path / "a.zip", ".png")) == [("a.png", b"1"), ("b.png", b"2")]
    (tmp_path / "b.zip").write_bytes(zipped({f"{n}.png": MEGABYTE for n in range(17)}))
    with pytest.raises(DataError, match="more than 100 times"):
        list(zip_contents(tmp_path / "b.zip", ".png"))
    (tmp_path / "c.zip").write_bytes(b"nothing")
    with pytest.raises(DataError, match="damaged archive"):
        list(zip_contents(tmp_path / "c.zip", ".png"))
    with pytest.raises(DataError, match="can't be read"):
        list(zip_contents(tmp_path / "nowhere.zip", ".png"))


def test_of_a_gzip_file_no_more_is_read_than_it_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"4" + b"x" * 1000))
    assert read_gzip(tmp_path / "a.gz", 1, int) == b"4xxxx"
    monkeypatch.setattr(archives, "_SMALL", 1)
    with pytest.raises(DataError, match="promises 9000000 bytes, more than 100 times its own size"):
        read_gzip(tmp_path / "a.gz", 1, lambda _: 9_000_000)


def test_the_sum_of_a_content_is_that_of_the_uncompressed_file(tmp_path: Path) -> None:
    for name, content in (("a", b"abc"), ("a.gz", gzip.compress(b"abc", 1)), ("b.gz", gzip.compress(b"abc", 9))):
        (tmp_path / name).write_bytes(content)
        assert content_sum(tmp_path / name) == hashlib.md5(b"abc").hexdigest()
    (tmp_path / "c.gz").write_bytes(gzip.compress(MEGABYTE * 17))
    with pytest.raises(DataError, match="holds more than 100 times"):
        content_sum(tmp_path / "c.gz")
    (tmp_path / "d.gz").write_bytes(gzip.compress(b"abc" * 100)[:-9])
    with pytest.raises(DataError, match="damaged gzip"):
        content_sum(tmp_path / "d.gz")
